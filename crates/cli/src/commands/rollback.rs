//! `brokkr rollback`: submits the content of an earlier version again, and bars the content that it replaces.

use brokkr_api::SequenceId;
use brokkr_api::objects::{DeploymentObject, RollBack};
use brokkr_api::rollouts::RolloutState;
use brokkr_client::{Client, PageQuery};

use crate::args::{Rollback, WaitOptions, WaitUntil};
use crate::commands::apply::content_of;
use crate::commands::confirm::proceed;
use crate::commands::deliver::Delivery;
use crate::failure::{About as _, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::history::short_checksum;
use crate::view::text::count;

pub async fn run(args: Rollback, client: &Client, printer: Printer) -> Result {
    let name = args.stack.as_str();
    let to =
        if printer.is_interactive() && !args.yes { confirm(&args, client, printer).await? } else { args.to };
    let request = RollBack { to, keep_open: args.no_bar, reason: args.reason.clone(), force: args.force };
    let object = client
        .roll_back(name, &request)
        .await
        .while_trying(&format!("roll back the stack {name}"))
        .about(Noun::Stack, name)?;
    let text = summary(&args, &object, client).await;
    // The first wave are agents with the bad version: what matters is when all of them are without it.
    let wait = args.waiting.wait.map(|_| WaitUntil::Rollout);
    let waiting = WaitOptions { wait, ..args.waiting.clone() };
    Delivery { stack: &args.stack, object: &object, client, printer }.finish(&text, &waiting).await
}

/// Shows both versions and the number of agents, and asks. Returns the version that was confirmed, so that a
/// submission in between does not change which version is restored.
async fn confirm(args: &Rollback, client: &Client, printer: Printer) -> Result<Option<SequenceId>> {
    let name = args.stack.as_str();
    let action = format!("read the stack {name}");
    let page = client.history(name, &PageQuery::largest()).await;
    let versions = page.while_trying(&action).about(Noun::Stack, name)?.items;
    let bars = client.barred_contents_all(name).await.while_trying(&action)?;
    let targeted = client.stack_summary(name).await.while_trying(&action)?.targeted;
    let rollouts = client.rollouts(Some(name), false, &PageQuery::largest()).await;
    let rollouts = rollouts.while_trying(&action)?.items;
    // Without a rollout, every agent got the version at once.
    let was_complete = |version: &DeploymentObject| {
        let rollout = rollouts.iter().find(|rollout| rollout.sequence_id == version.sequence_id);
        rollout.is_none_or(|rollout| rollout.state == RolloutState::Completed)
    };
    let is_barred = |version: &DeploymentObject| bars.iter().any(|bar| bar.checksum == version.checksum);
    let Some(newest) = versions.first() else { return Ok(args.to) };
    let to = match args.to {
        Some(to) => versions.iter().find(|version| version.sequence_id == to),
        None => versions.iter().find(|version| {
            let is_other = !version.is_deletion_marker && version.checksum != newest.checksum;
            is_other && !is_barred(version) && was_complete(version)
        }),
    };
    // There is nothing to show. The broker decides, and says why if it refuses.
    let Some(to) = to else { return Ok(args.to) };
    let agents = count(usize::try_from(targeted).unwrap_or(usize::MAX), "agent");
    let described = |version: &DeploymentObject| match &version.message {
        Some(message) => format!("{} ({message})", content_of(version)),
        None => content_of(version),
    };
    printer.warn(&format!("rolling back stack {name} of {} on {agents}", client.base()));
    printer.note(&format!("  from {}", described(newest)));
    printer.note(&format!("  to   {}", described(to)));
    proceed("Roll back?", printer).await?;
    Ok(Some(to.sequence_id))
}

/// Describes the result. Details that cannot be read are left out.
async fn summary(args: &Rollback, object: &DeploymentObject, client: &Client) -> String {
    let name = &args.stack;
    let history = client.history(name.as_str(), &PageQuery::largest()).await;
    let versions = history.map(|page| page.items).unwrap_or_default();
    let is_source = |version: &&DeploymentObject| {
        version.checksum == object.checksum && version.sequence_id < object.sequence_id
    };
    let source = args.to.or_else(|| versions.iter().find(is_source).map(|version| version.sequence_id));
    let source = source.map(|source| format!(" to {source}")).unwrap_or_default();
    let mut text = format!("stack {name}: rolled back{source}, submitted as version {}", content_of(object));
    let replaced = versions.iter().find(|version| version.sequence_id < object.sequence_id);
    if let Some(replaced) =
        replaced.filter(|replaced| replaced.checksum != object.checksum && !replaced.is_deletion_marker)
    {
        let what = format!("{} (sha256 {})", replaced.sequence_id, short_checksum(replaced.checksum));
        text.push_str(&if args.no_bar {
            format!("\n{what} is not barred: it can be submitted again")
        } else {
            format!(
                "\n{what} is barred: it is refused until `brokkr stack unbar {name} {}`",
                replaced.sequence_id
            )
        });
    }
    text
}

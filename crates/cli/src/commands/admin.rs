//! `brokkr admin …`

use brokkr_api::system::Settlement;
use brokkr_client::Client;

use crate::args::{AdminCommand, Purge, Settle};
use crate::commands::confirm::confirm;
use crate::failure::{Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::admin::{Ahead, Unconfirmed, Unknown};
use crate::view::text::count;
use crate::view::whole;

pub mod preflight;
pub mod support_bundle;

pub async fn run(args: AdminCommand, client: &Client, printer: Printer) -> Result {
    match args {
        // Handled by `commands::run`.
        AdminCommand::Preflight | AdminCommand::SupportBundle(_) => Ok(()),
        AdminCommand::Status => {
            let system = client.system().await.while_trying("read the state of the installation")?;
            printer.show(&system)
        }
        AdminCommand::Ahead => {
            let stacks = client.system_ahead_all().await.while_trying("list the stacks that are ahead")?;
            printer.show(&Ahead(whole(stacks)))
        }
        AdminCommand::Unknown => {
            let stacks = client.system_unknown_all().await.while_trying("list the unknown stacks")?;
            printer.show(&Unknown(whole(stacks)))
        }
        AdminCommand::Unconfirmed => {
            let stacks = client.system_unconfirmed_all().await.while_trying("list the unconfirmed stacks")?;
            printer.show(&Unconfirmed(whole(stacks)))
        }
        AdminCommand::Settle(args) => settle(args, client, printer).await,
        AdminCommand::Purge(args) => purge(args, client, printer).await,
    }
}

async fn settle(args: Settle, client: &Client, printer: Printer) -> Result {
    let (stack, settlement) = (args.stack.as_str(), args.choice.to_api());
    let action = format!("settle the stack {stack}");
    // These believe what agents say: show which agents.
    let effect = match settlement {
        Settlement::Recreate => Some(("recreating", "will target")),
        Settlement::Keep => Some(("keeping", "will target")),
        Settlement::Remove => Some(("removing", "will be removed from")),
        Settlement::PublishRestored | Settlement::Delete => None,
    };
    if let Some((doing, effect)) = effect.filter(|_| !args.yes) {
        let holders = client.system_holders_all(stack).await.while_trying(&action)?;
        let claimants = holders.iter().filter(|holder| !holder.confirmed);
        let names: Vec<&str> = claimants.map(|holder| holder.agent_name.as_str()).collect();
        printer.warn(&format!("{stack} {effect} {}: {}", count(names.len(), "agent"), names.join(", ")));
        confirm(&format!("{doing} {stack}"), stack, printer).await?;
    }
    let settled = client.settle(stack, &settlement).await.while_trying(&action)?;
    printer.done(&settled, format!("stack/{stack}"), || view::admin::settled(stack, settlement, &settled))
}

async fn purge(args: Purge, client: &Client, printer: Printer) -> Result {
    let stack = args.stack.as_str();
    if !args.yes {
        confirm(&format!("purging {stack}"), stack, printer).await?;
    }
    let purged =
        client.purge_stack(stack, &args.reason).await.while_trying(&format!("purge the stack {stack}"))?;
    printer.done(&purged, format!("stack/{stack}"), || {
        let versions = usize::try_from(purged.versions).unwrap_or(usize::MAX);
        format!("stack {stack} is purged: the content of {} is deleted", count(versions, "version"))
    })
}

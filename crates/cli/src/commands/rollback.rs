//! `brokkr rollback`: the old content as a new version, and the bad one barred.

use brokkr_api::objects::{DeploymentObject, RollBack};
use brokkr_client::{Client, PageQuery};

use crate::args::Rollback;
use crate::commands::apply::content_of;
use crate::commands::deliver::Delivery;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view::history::short_checksum;

pub async fn run(args: Rollback, client: &Client, printer: Printer) -> Result<(), Failure> {
    let name = args.stack.as_str();
    let wanted = RollBack { to: args.to, keep_open: args.keep_open, reason: args.reason.clone() };
    let object = client
        .roll_back(name, &wanted)
        .await
        .while_trying(&format!("roll back the stack {name}"))
        .about(Noun::Stack, name)?;
    let text = told(&args, &object, client).await;
    Delivery { stack: &args.stack, object: &object, client, printer }.finish(&text, &args.waiting).await
}

/// What was done, with what can be found out about it: the roll-back itself does not hang on that.
async fn told(args: &Rollback, object: &DeploymentObject, client: &Client) -> String {
    let name = &args.stack;
    let history = client.history(name.as_str(), &PageQuery::largest()).await;
    let versions = history.map(|page| page.items).unwrap_or_default();
    let is_source = |version: &&DeploymentObject| {
        version.checksum == object.checksum && version.sequence_id < object.sequence_id
    };
    let source = args.to.or_else(|| versions.iter().find(is_source).map(|version| version.sequence_id));
    let source = source.map(|source| format!(" to {source}")).unwrap_or_default();
    let mut text = format!("stack {name}: rolled back{source}, submitted as {}", content_of(object));
    let left = versions.iter().find(|version| version.sequence_id < object.sequence_id);
    if let Some(left) = left.filter(|left| left.checksum != object.checksum && !left.is_deletion_marker) {
        let what = format!("{} (sha256 {})", left.sequence_id, short_checksum(left.checksum));
        text.push_str(&if args.keep_open {
            format!("\n{what} was not barred: whoever submits it again brings it back")
        } else {
            format!("\n{what} is barred: it is refused until `brokkr bar lift {name} {}`", left.sequence_id)
        });
    }
    text
}

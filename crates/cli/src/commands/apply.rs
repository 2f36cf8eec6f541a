//! `brokkr apply`: check locally, make or change the stack, submit, and wait for exactly what was submitted.

use brokkr_api::ErrorCode;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_client::{Client, IdempotencyKey};

use crate::args::{Apply, Global};
use crate::commands::deliver::Delivery;
use crate::commands::retarget::put_targets;
use crate::connect::connect;
use crate::failure::{Failure, WhileTrying as _};
use crate::manifest;
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

pub async fn run(args: Apply, global: &Global, printer: Printer) -> Result<(), Failure> {
    let content = manifest::read(&args.content, args.stack.as_str(), printer).await?;
    let client = connect(global, printer)?;
    let stack = put_stack(&args, &client).await?;
    let stack = put_targets(&args.stack, &args.targeting, stack, &client, printer).await?;
    let object = printer.patiently("submitting", submit(&args, content, &client)).await?;
    if stack.targets == StackTargets::default() {
        printer.warn(&format!("{} targets no agent: use --to SELECTOR or --to-agent NAME", args.stack));
    }
    let text = format!("stack {}: submitted as {}", args.stack, content_of(&object));
    let delivery = Delivery { stack: &args.stack, object: &object, client: &client, printer };
    delivery.finish(&text, &args.waiting).await
}

/// `42 (14 resources, sha256 9f2c…)`
pub fn content_of(object: &DeploymentObject) -> String {
    let resources = count(usize::try_from(object.resources).unwrap_or(0), "resource");
    let checksum = view::history::short_checksum(object.checksum);
    format!("{} ({resources}, sha256 {checksum})", object.sequence_id)
}

async fn put_stack(args: &Apply, client: &Client) -> Result<Stack, Failure> {
    let action = format!("make the stack {}", args.stack);
    let mut put = PutStack::default();
    if !args.label.is_empty() {
        // Labels are replaced as a whole, and those not named here should stay.
        let mut labels = match client.stack(args.stack.as_str()).await {
            Ok(stack) => stack.labels,
            Err(error) if matches!(error.code(), Some(ErrorCode::BRK2001 | ErrorCode::BRK2008)) => {
                Default::default()
            }
            Err(error) => return Err(Failure::of_client(&action, error)),
        };
        labels.extend(args.label.iter().cloned());
        put.labels = Some(labels);
    }
    client.put_stack(args.stack.as_str(), &put).await.while_trying(&action)
}

async fn submit(args: &Apply, content: Vec<u8>, client: &Client) -> Result<DeploymentObject, Failure> {
    client
        .submit(args.stack.as_str(), content, &Provenance::default(), &IdempotencyKey::generate())
        .await
        .while_trying(&format!("submit to the stack {}", args.stack))
        .map_err(|failure| lifted(args, failure))
}

/// A barred content is told with the command that allows it again.
fn lifted(args: &Apply, failure: Failure) -> Failure {
    match failure.code {
        Some(ErrorCode::BRK2011) => failure.next(format!(
            "submit another content; or, if it is good after all, `brokkr bar list {0}` and `brokkr bar lift {0} …`",
            args.stack
        )),
        _ => failure,
    }
}

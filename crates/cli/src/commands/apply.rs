//! `brokkr apply`: checks locally, creates or changes the stack, submits, and waits for exactly that version.

use brokkr_api::ErrorCode;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_client::rollouts::RolloutOptions;
use brokkr_client::{Client, IdempotencyKey};

use crate::args::{Apply, Global};
use crate::commands::deliver::Delivery;
use crate::commands::stack::put_targets;
use crate::connect::connect;
use crate::failure::{Exit, Failure, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::text::count;
use crate::{git, manifest, view};

pub async fn run(args: Apply, global: &Global, printer: Printer) -> Result {
    let content = manifest::read(&args.content, args.stack.as_str(), printer).await?;
    for hook in manifest::left_out(&content) {
        printer.warn(&hook);
    }
    let provenance = provenance(&args).await?;
    let client = connect(global, printer)?;
    let stack = put_stack(&args, &client).await?;
    let stack = put_targets(&args.stack, &args.targeting, stack, &client, printer).await?;
    let object = printer.with_spinner("submitting", submit(&args, content, &provenance, &client)).await?;
    if stack.targets == StackTargets::default() {
        printer.warn(&format!("{} targets no agents: use --to SELECTOR or --to-agent NAME", args.stack));
    }
    let text = format!("stack {}: submitted as version {}", args.stack, content_of(&object));
    let delivery = Delivery { stack: &args.stack, object: &object, client: &client, printer };
    delivery.finish(&text, &args.waiting).await
}

/// `42 (14 resources, sha256 9f2c…)`
pub fn content_of(object: &DeploymentObject) -> String {
    let resources = count(usize::try_from(object.resources).unwrap_or(0), "resource");
    let checksum = view::history::short_checksum(object.checksum);
    format!("{} ({resources}, sha256 {checksum})", object.sequence_id)
}

async fn provenance(args: &Apply) -> Result<Provenance> {
    let commit = match &args.commit {
        Some(commit) => Some(commit.clone()),
        None => git::commit(&args.content).await,
    };
    Provenance::new(args.message.as_deref(), commit.as_deref())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()).next("see `brokkr apply --help`"))
}

async fn put_stack(args: &Apply, client: &Client) -> Result<Stack> {
    let action = format!("create the stack {}", args.stack);
    let mut put = PutStack::default();
    if !args.label.is_empty() {
        // The API replaces all labels, and labels that are not given here must stay.
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

async fn submit(
    args: &Apply,
    content: Vec<u8>,
    provenance: &Provenance,
    client: &Client,
) -> Result<DeploymentObject> {
    client
        .submit_as(args.stack.as_str(), content, provenance, &options(args), &IdempotencyKey::generate())
        .await
        .while_trying(&format!("submit to the stack {}", args.stack))
        .map_err(|failure| with_unbar(args, failure))
}

fn options(args: &Apply) -> RolloutOptions {
    let rollout = &args.rollout;
    RolloutOptions { waves: rollout.waves.clone(), soak: rollout.soak, now: rollout.reason.clone() }
}

/// If the content was refused because it is barred, adds the command that unbars it.
fn with_unbar(args: &Apply, failure: Failure) -> Failure {
    match failure.code {
        Some(ErrorCode::BRK2011) => failure.next(format!(
            "submit other content, or unbar it: `brokkr stack barred {0}`, then `brokkr stack unbar {0} SEQUENCE`",
            args.stack
        )),
        _ => failure,
    }
}

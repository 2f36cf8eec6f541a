//! `brokkr stack delete`: shows the impact, asks, submits the deletion, and waits until every agent has removed the stack.

use std::time::Duration;

use brokkr_api::objects::DeploymentObject;
use brokkr_api::stacks::Stack;
use brokkr_api::status::{StackStatus, State};
use brokkr_client::Client;
use brokkr_client::rollouts::RolloutOptions;
use serde::Serialize;

use crate::args::{DeleteStack, WaitTerms};
use crate::commands::confirm::confirm;
use crate::commands::rollout::ended;
use crate::commands::status::reasons;
use crate::commands::wait::{Ending, Waited, wait};
use crate::delivery::{Goal, Verdict};
use crate::failure::{About as _, Exit, Failure, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::receipts::{Receipt, receipts};
use crate::view::text::count;
use crate::view::whole;

/// On more agents than this, `--yes` alone is not enough.
const MANY: usize = 10;

/// The document of `-o json`: the deletion marker, and the status of the agents after a wait.
#[derive(Serialize)]
struct Deleted<'a> {
    #[serde(flatten)]
    marker: &'a DeploymentObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a [StackStatus]>,
}

pub async fn run(args: DeleteStack, client: &Client, printer: Printer) -> Result {
    let name = &args.stack;
    let action = format!("delete the stack {name}");
    let stack = client.stack(name.as_str()).await.while_trying(&action).about(Noun::Stack, name)?;
    if stack.deleted_at.is_none() {
        guard(&args, &stack, client, printer).await?;
    }
    // By id: during the confirmation, another stack may have taken the name.
    let id = stack.id.to_string();
    let rollout = RolloutOptions { waves: args.waves.clone(), soak: args.soak, now: None };
    let marker =
        client.delete_stack_as(&id, args.keep_resources, args.force, &rollout).await.while_trying(&action)?;
    if printer.is_for_people() {
        let what = if stack.deleted_at.is_some() {
            "was already deleted as version"
        } else {
            "deletion submitted as version"
        };
        printer.data(&format!("stack {}: {what} {}", stack.name, marker.sequence_id))?;
    }
    if !args.wait {
        return document(&marker, None, printer);
    }
    let goal = Goal::Removed(marker.sequence_id);
    let title = format!("waiting until {} is gone", stack.name);
    let waited =
        wait(client, stack.id, goal, &title, args.timeout, &WaitTerms::every_agent(), printer).await?;
    document(&marker, Some(&waited.rows), printer)?;
    judge(&stack, goal, waited, args.timeout, client, printer).await
}

/// Prints a receipt per agent, and fails if the stack is not removed everywhere.
pub async fn judge(
    stack: &Stack,
    goal: Goal,
    waited: Waited,
    timeout: Duration,
    client: &Client,
    printer: Printer,
) -> Result {
    let receipts = receipts(&waited.rows);
    let summary = removal_summary(stack, &receipts);
    if printer.is_for_people() && !receipts.is_empty() {
        printer.show(&whole(receipts))?;
    }
    let outcome = match waited.ending {
        Ending::Settled(Verdict::Reached) => {
            printer.note(&summary);
            return Ok(());
        }
        Ending::Settled(Verdict::Stopped | Verdict::Replaced(_)) => {
            let ended = waited.rollout.as_ref().map_or(Ok(()), |rollout| ended(&stack.name, rollout));
            return ended.map_err(|failure| failure.line(view::progress::summary(goal, &waited.rows)));
        }
        Ending::Settled(_) => {
            Failure::new(Exit::Failed, format!("{} could not be removed everywhere", stack.name))
        }
        Ending::TimedOut => {
            let time = humantime::format_duration(timeout);
            Failure::new(Exit::Timeout, format!("{} was not removed everywhere within {time}", stack.name))
        }
    };
    let outcome = outcome.line(view::progress::summary(goal, &waited.rows));
    let reasons = reasons(client, &waited.rows).await;
    let outcome = reasons.lines().fold(outcome, Failure::line);
    Err(outcome.next(format!(
        "brokkr status {}; the deletion continues, and reaches agents when they connect",
        stack.id
    )))
}

/// Describes a completed removal.
fn removal_summary(stack: &Stack, receipts: &[Receipt]) -> String {
    let gone: Vec<&Receipt> = receipts.iter().filter(|receipt| receipt.state == State::Removed).collect();
    let (agents, left) = (count(gone.len(), "agent"), gone.iter().map(|receipt| receipt.left.len()).sum());
    let stay = count(left, "object");
    match (gone.len(), gone.iter().any(|receipt| receipt.objects > 0), left) {
        (0, ..) => format!("{} was on no agent", stack.name),
        (_, _, 0) => format!("{} is removed from {agents}", stack.name),
        (_, true, _) => format!("{} is removed from {agents}; {stay} left there, listed above", stack.name),
        (_, false, _) => format!("{} is no longer managed on {agents}; {stay} left there", stack.name),
    }
}

/// Requires a confirmation that fits the impact.
async fn guard(args: &DeleteStack, stack: &Stack, client: &Client, printer: Printer) -> Result {
    let name = &stack.name;
    if !args.yes && args.expect.is_none() && !printer.is_interactive() {
        // The refusal does not need the impact.
        return confirm(&format!("deleting {name}"), name.as_str(), printer).await;
    }
    let id = stack.id.to_string();
    let rows = printer
        .with_spinner("reading the status", client.stack_status_all(&id))
        .await
        .while_trying(&format!("read the status of the stack {name}"))?;
    let on: Vec<&str> =
        rows.iter().filter(|row| row.state != State::Removed).map(|row| row.agent_name.as_str()).collect();
    let impact = impact(name.as_str(), &on, args.keep_resources, client);
    match args.expect {
        Some(expected) if expected != on.len() => {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{name} is not on {}", count(expected, "agent")),
            )
            .line(impact)
            .next(format!("to delete it anyway, use --expect {}", on.len())));
        }
        Some(_) => {}
        None if args.yes && on.len() > MANY => {
            return Err(Failure::new(Exit::Conflict, format!("{name} is on more than {MANY} agents"))
                .line(impact)
                .next(format!("to delete it anyway, use --yes --expect {}", on.len())));
        }
        None => {}
    }
    if args.yes {
        return Ok(());
    }
    printer.warn(&impact);
    confirm(&format!("deleting {name}"), name.as_str(), printer).await
}

fn impact(name: &str, on: &[&str], keep_resources: bool, client: &Client) -> String {
    let server = client.base();
    if on.is_empty() {
        return format!("{name} of {server} is on no agent");
    }
    let shown = on.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if on.len() > 5 { format!(" and {} more", on.len() - 5) } else { String::new() };
    let agents = count(on.len(), "agent");
    let fate = if keep_resources { "stay, no longer managed" } else { "be deleted" };
    format!("{name} of {server} is on {agents}: {shown}{more}. Its resources there will {fate}.")
}

fn document(marker: &DeploymentObject, status: Option<&[StackStatus]>, printer: Printer) -> Result {
    if printer.is_for_people() {
        return Ok(());
    }
    printer.done(
        &Deleted { marker, status },
        format!("deployment-object/{}", marker.sequence_id),
        String::new,
    )
}

//! `brokkr apply`: check locally, make or change the stack, submit, and wait for exactly what was submitted.

use std::time::Instant;

use brokkr_api::ErrorCode;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_api::status::StackStatus;
use brokkr_client::{Client, IdempotencyKey};
use serde::Serialize;

use crate::args::{Apply, Global};
use crate::commands::status::why;
use crate::commands::wait::{Ending, wait};
use crate::connect::connect;
use crate::delivery::{Goal, Standing, Verdict};
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::manifest;
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

/// The document of `-o json`: the object, and what the agents said if they were waited for.
#[derive(Serialize)]
struct Applied<'a> {
    #[serde(flatten)]
    object: &'a DeploymentObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a [StackStatus]>,
}

pub async fn run(args: Apply, global: &Global, printer: Printer) -> Result<(), Failure> {
    let content = manifest::read(&args.files)?;
    let client = connect(global, printer)?;
    let stack = put_stack(&args, &client).await?;
    let stack = put_targets(&args, stack, &client, printer).await?;
    let started = Instant::now();
    let object = submit(&args, content, &client).await?;
    if !printer.wants_json() {
        let (name, sequence) = (&args.stack, object.sequence_id);
        let resources = count(usize::try_from(object.resources).unwrap_or(0), "resource");
        printer.data(&format!(
            "stack {name}: submitted as {sequence} ({resources}, sha256 {})",
            view::history::short_checksum(&object)
        ))?;
    }
    if stack.targets == StackTargets::default() {
        printer.warn(&format!("{} targets no agent: use --to SELECTOR or --to-agent NAME", args.stack));
    }
    if !args.wait {
        return document(&object, None, printer);
    }
    let goal = Goal::Delivered(object.sequence_id);
    let waited = wait(&client, object.stack_id, goal, args.timeout, printer).await?;
    document(&object, Some(&waited.rows), printer)?;
    let outcome = match waited.ending {
        Ending::Settled(Verdict::Reached) => {
            let reached = waited.rows.iter().filter(|row| goal.standing(row) == Standing::Reached).count();
            let seconds = started.elapsed().as_secs();
            printer.note(&format!("{} is healthy on {} ({seconds}s)", args.stack, count(reached, "agent")));
            return Ok(());
        }
        Ending::Settled(Verdict::Replaced(newer)) => {
            return Err(Failure::new(
                Exit::Conflict,
                format!("{} was replaced by {newer} before it arrived everywhere", object.sequence_id),
            )
            .line(format!("somebody submitted a newer version of {}", args.stack))
            .next(format!("brokkr history {}", args.stack)));
        }
        Ending::Settled(_) => Failure::new(
            Exit::Failed,
            format!("{} failed on {}", object.sequence_id, failed(goal, &waited.rows)),
        ),
        Ending::TimedOut => timed_out(&args, goal, &waited.rows),
    };
    let why = why(&client, &waited.rows).await;
    let outcome = why.lines().fold(outcome, Failure::line);
    Err(outcome.next(format!("brokkr status {}; what was submitted stays, and agents go on", args.stack)))
}

fn document(
    object: &DeploymentObject,
    status: Option<&[StackStatus]>,
    printer: Printer,
) -> Result<(), Failure> {
    if printer.wants_json() { printer.result(&Applied { object, status }, String::new) } else { Ok(()) }
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

async fn put_targets(
    args: &Apply,
    stack: Stack,
    client: &Client,
    printer: Printer,
) -> Result<Stack, Failure> {
    if args.to.is_empty() && args.to_agent.is_empty() {
        return Ok(stack);
    }
    let agents = args.to_agent.iter().map(ToString::to_string).collect();
    let targets = StackTargets { agents, selectors: args.to.clone() };
    let takes_away = stack.targets.selectors.iter().any(|old| !targets.selectors.contains(old))
        || stack.targets.agents.iter().any(|old| !targets.agents.contains(old));
    if takes_away {
        let (before, after) = (view::stacks::targets(&stack.targets), view::stacks::targets(&targets));
        printer.warn(&format!(
            "the targets of {} change from {before} to {after}: agents that lose it remove it",
            args.stack
        ));
    }
    client
        .put_stack_targets_expecting(args.stack.as_str(), &targets, args.expect)
        .await
        .while_trying(&format!("set the targets of the stack {}", args.stack))
}

async fn submit(args: &Apply, content: Vec<u8>, client: &Client) -> Result<DeploymentObject, Failure> {
    client
        .submit(args.stack.as_str(), content, &IdempotencyKey::generate())
        .await
        .while_trying(&format!("submit to the stack {}", args.stack))
}

fn failed(goal: Goal, rows: &[StackStatus]) -> String {
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| goal.standing(row) == Standing::Failed)
        .map(|row| row.agent_name.as_str())
        .collect();
    let concerned = rows.iter().filter(|row| goal.standing(row) != Standing::NotConcerned).count();
    match failed.as_slice() {
        [only] if concerned == 1 => (*only).to_owned(),
        several => format!("{} of {}", several.len(), count(concerned, "agent")),
    }
}

/// What failed is a failure, even if others were still on their way when the time was up.
fn timed_out(args: &Apply, goal: Goal, rows: &[StackStatus]) -> Failure {
    let time = humantime::format_duration(args.timeout);
    let has_failed = rows.iter().any(|row| goal.standing(row) == Standing::Failed);
    let exit = if has_failed { Exit::Failed } else { Exit::Timeout };
    let failure = Failure::new(exit, format!("{} has not arrived everywhere within {time}", args.stack));
    failure.line(view::progress::summary(goal, rows))
}

//! `brokkr delete stack`: ask, mark, and wait until every agent has seen it gone.

use brokkr_api::objects::DeploymentObject;
use brokkr_api::stacks::Stack;
use brokkr_api::status::{StackStatus, State};
use brokkr_client::Client;
use serde::Serialize;

use crate::args::DeleteStack;
use crate::commands::status::why;
use crate::commands::wait::{Ending, wait};
use crate::delivery::{Goal, Verdict};
use crate::failure::{Exit, Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

/// The document of `-o json`: the deletion marker, and what the agents said if they were waited for.
#[derive(Serialize)]
struct Deleted<'a> {
    #[serde(flatten)]
    marker: &'a DeploymentObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a [StackStatus]>,
}

pub async fn run(args: DeleteStack, client: &Client, printer: Printer) -> Result<(), Failure> {
    let name = &args.name;
    let action = format!("delete the stack {name}");
    let stack = client.stack(name.as_str()).await.while_trying(&action)?;
    if !args.yes && stack.deleted_at.is_none() {
        confirm(&stack, client, printer).await?;
    }
    // By id: between the question and now, the name may have become another stack's.
    let marker = client.delete_stack(&stack.id.to_string()).await.while_trying(&action)?;
    if !printer.wants_json() {
        let what =
            if stack.deleted_at.is_some() { "was already deleted, as" } else { "deletion submitted as" };
        printer.data(&format!("stack {}: {what} {}", stack.name, marker.sequence_id))?;
    }
    if !args.wait {
        return document(&marker, None, printer);
    }
    let goal = Goal::Removed(marker.sequence_id);
    let waited = wait(client, stack.id, goal, args.timeout, printer).await?;
    document(&marker, Some(&waited.rows), printer)?;
    let outcome = match waited.ending {
        Ending::Settled(Verdict::Reached) => {
            match waited.rows.iter().filter(|row| row.state == State::Removed).count() {
                0 => printer.note(&format!("{} was on no agent", stack.name)),
                gone => printer.note(&format!("{} is gone from {}", stack.name, count(gone, "agent"))),
            }
            return Ok(());
        }
        Ending::Settled(_) => {
            Failure::new(Exit::Failed, format!("{} could not be removed everywhere", stack.name))
        }
        Ending::TimedOut => {
            let time = humantime::format_duration(args.timeout);
            Failure::new(Exit::Timeout, format!("{} is not gone everywhere within {time}", stack.name))
        }
    };
    let outcome = outcome.line(view::progress::summary(goal, &waited.rows));
    let why = why(client, &waited.rows).await;
    let outcome = why.lines().fold(outcome, Failure::line);
    Err(outcome
        .next(format!("brokkr status {}; the deletion goes on, also on agents that are away now", stack.id)))
}

async fn confirm(stack: &Stack, client: &Client, printer: Printer) -> Result<(), Failure> {
    if !printer.can_ask() {
        return Err(Failure::new(Exit::Usage, format!("deleting {} wants to be confirmed", stack.name))
            .next("add --yes in scripts"));
    }
    let rows = client
        .stack_status_all(&stack.id.to_string())
        .await
        .while_trying(&format!("read where the stack {} is", stack.name))?;
    let on: Vec<&str> =
        rows.iter().filter(|row| row.state != State::Removed).map(|row| row.agent_name.as_str()).collect();
    let shown = on.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if on.len() > 5 { format!(" and {} more", on.len() - 5) } else { String::new() };
    let server = client.base();
    match on.len() {
        0 => printer.warn(&format!("{} of {server} is on no agent", stack.name)),
        some => printer.warn(&format!(
            "{} of {server} is on {}: {shown}{more}. Its resources there will be deleted.",
            stack.name,
            count(some, "agent")
        )),
    }
    let answer = printer.ask(&format!("Type {} to delete it: ", stack.name)).await;
    if answer.as_deref() == Some(stack.name.as_str()) {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "not confirmed, nothing was deleted"))
}

fn document(
    marker: &DeploymentObject,
    status: Option<&[StackStatus]>,
    printer: Printer,
) -> Result<(), Failure> {
    if printer.wants_json() { printer.result(&Deleted { marker, status }, String::new) } else { Ok(()) }
}

//! `brokkr approve`: show what waits, or let it go on.

use brokkr_api::approvals::ApprovePrune;
use brokkr_client::{Client, PageQuery};

use crate::args::Approve;
use crate::failure::{About as _, Exit, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;

pub async fn run(args: Approve, client: &Client, printer: Printer) -> Result<(), Failure> {
    let name = args.stack.as_str();
    let action = format!("approve the prune of the stack {name}");
    let stack = client.stack(name).await.while_trying(&action).about(Noun::Stack, name)?;
    if args.list {
        let page = client.prune_approvals(name, &PageQuery::largest()).await;
        return printer.show(&page.while_trying(&format!("read what was approved of the stack {name}"))?);
    }
    let Some(objects) = args.expect else { return show(&args, client).await };
    let sequence_id = args
        .sequence
        .or(stack.sequence_id)
        .ok_or_else(|| Failure::new(Exit::NotFound, format!("nothing was submitted to {name} yet")))?;
    let wanted = ApprovePrune { sequence_id, objects, agent: args.agent.as_ref().map(ToString::to_string) };
    let approval = client.approve_prune(&stack.id.to_string(), &wanted).await.while_trying(&action);
    let approval = match &args.agent {
        Some(agent) => approval.about(Noun::Agent, agent)?,
        None => approval?,
    };
    printer.done(&approval, format!("stack/{name}"), || {
        let agents =
            args.agent.as_ref().map_or_else(|| "every agent".to_owned(), |agent| format!("agent {agent}"));
        format!(
            "stack {name}: {sequence_id} may delete up to {} on {agents}",
            count(objects as usize, "object")
        )
    })
}

/// Nothing is approved by accident: the number has to come from whoever looked.
async fn show(args: &Approve, client: &Client) -> Result<(), Failure> {
    let name = &args.stack;
    let rows = client
        .stack_status_all(name.as_str())
        .await
        .while_trying(&format!("read what waits of the stack {name}"))?;
    let waiting = view::approvals::waiting(&rows);
    let failure = if waiting.is_empty() {
        Failure::new(Exit::NotFound, format!("no prune of {name} waits to be approved"))
            .next(format!("brokkr status {name}"))
    } else {
        let what = format!("a prune of {name} waits on {}", count(waiting.len(), "agent"));
        Failure::new(Exit::Conflict, what).next(format!(
            "look at `brokkr diff {name}`; if it is meant, `brokkr approve {name} --expect NUMBER` with the largest of them"
        ))
    };
    Err(waiting.into_iter().fold(failure, Failure::line))
}

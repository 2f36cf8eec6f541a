//! `brokkr why`: the broker explains a stack on an agent, a stack, or an agent.

use brokkr_api::Name;
use brokkr_api::status::StackStatus;
use brokkr_api::why::StackWhy;
use brokkr_client::{Client, PageQuery};

use crate::args::{Subject, Why};
use crate::failure::{About as _, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;
use crate::view::whole;

/// Agents that are explained if none is given.
const MOST_AGENTS: usize = 10;

pub async fn run(args: Why, client: &Client, printer: Printer) -> Result {
    match (args.subject, args.agent) {
        (Subject::Agent(agent), _) => {
            let why = client
                .agent_why(agent.as_str())
                .await
                .while_trying(&format!("explain the agent {agent}"))
                .about(Noun::Agent, &agent)?;
            printer.show(&why)
        }
        (Subject::Stack(stack), Some(agent)) => printer.show(&one(&stack, agent.as_str(), client).await?),
        (Subject::Stack(stack), None) => everywhere(&stack, client, printer).await,
    }
}

async fn one(stack: &Name, agent: &str, client: &Client) -> Result<StackWhy> {
    client
        .stack_why(stack.as_str(), agent)
        .await
        .while_trying(&format!("explain the stack {stack} on {agent}"))
        .about(Noun::Stack, stack)
        .about(Noun::Agent, agent)
}

async fn everywhere(stack: &Name, client: &Client, printer: Printer) -> Result {
    let (agents, seen) =
        printer.with_spinner("looking for agents that are not in sync", not_in_sync(stack, client)).await?;
    let mut whys = Vec::new();
    for row in &agents {
        whys.push(one(stack, &row.agent_id.to_string(), client).await?);
    }
    match whys.as_slice() {
        [] if printer.is_for_people() => printer.data(&match seen {
            0 => format!("{stack} targets no agents: use `brokkr stack retarget {stack} --to SELECTOR`"),
            seen => format!("{stack} is in sync on {}", count(seen, "agent")),
        }),
        [only] if printer.is_for_people() => printer.show(only),
        _ => {
            let is_full = whys.len() == MOST_AGENTS;
            let steps = view::why::steps(&whys);
            printer.show(&whole(whys))?;
            if printer.is_for_people() {
                printer.data(&format!("\n{steps}"))?;
                let more = if is_full { "there may be more agents; " } else { "" };
                printer.note(&format!(
                    "\n{more}all errors, grouped: brokkr errors {stack}; details of one agent: brokkr why {stack} --agent NAME"
                ));
            }
            Ok(())
        }
    }
}

/// Returns the first agents that are not in sync, and the number of rows read.
async fn not_in_sync(stack: &Name, client: &Client) -> Result<(Vec<StackStatus>, usize)> {
    let mut query = PageQuery::largest();
    let (mut found, mut seen) = (Vec::new(), 0);
    loop {
        let page = client
            .stack_status(stack.as_str(), &query)
            .await
            .while_trying(&format!("read the status of the stack {stack}"))
            .about(Noun::Stack, stack)?;
        seen += page.items.len();
        found.extend(page.items.into_iter().filter(view::reasons::is_shown));
        found.truncate(MOST_AGENTS);
        match page.next {
            Some(next) if found.len() < MOST_AGENTS => query.after = Some(next),
            _ => return Ok((found, seen)),
        }
    }
}

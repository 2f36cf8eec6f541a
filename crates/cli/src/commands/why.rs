//! `brokkr why`: the broker's own answer, about a stack on an agent, a stack, or an agent.

use brokkr_api::Name;
use brokkr_api::status::StackStatus;
use brokkr_api::why::StackWhy;
use brokkr_client::{Client, PageQuery};

use crate::args::{Subject, Why};
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::text::count;
use crate::view::whole;

/// Agents that are asked about when none is named.
const ASKED: usize = 10;

pub async fn run(args: Why, client: &Client, printer: Printer) -> Result<(), Failure> {
    match (args.subject, args.agent) {
        (Subject::Agent(agent), _) => {
            let why = client
                .agent_why(agent.as_str())
                .await
                .while_trying(&format!("ask about the agent {agent}"))
                .about(Noun::Agent, &agent)?;
            printer.show(&why)
        }
        (Subject::Stack(stack), Some(agent)) => printer.show(&one(&stack, agent.as_str(), client).await?),
        (Subject::Stack(stack), None) => everywhere(&stack, client, printer).await,
    }
}

async fn one(stack: &Name, agent: &str, client: &Client) -> Result<StackWhy, Failure> {
    client
        .stack_why(stack.as_str(), agent)
        .await
        .while_trying(&format!("ask about the stack {stack} on {agent}"))
        .about(Noun::Stack, stack)
        .about(Noun::Agent, agent)
}

async fn everywhere(stack: &Name, client: &Client, printer: Printer) -> Result<(), Failure> {
    let (stuck, seen) = printer.patiently("looking for agents that are stuck", stuck(stack, client)).await?;
    let mut whys = Vec::new();
    for row in &stuck {
        whys.push(one(stack, &row.agent_id.to_string(), client).await?);
    }
    match whys.as_slice() {
        [] if printer.is_for_people() => printer.data(&match seen {
            0 => format!(
                "no agent is targeted by {stack}: `brokkr retarget {stack} --to SELECTOR` changes that"
            ),
            seen => format!("{stack} is as it should be on {}", count(seen, "agent")),
        }),
        [only] if printer.is_for_people() => printer.show(only),
        _ => {
            let is_full = whys.len() == ASKED;
            let steps = view::why::steps(&whys);
            printer.show(&whole(whys))?;
            if printer.is_for_people() {
                printer.data(&format!("\n{steps}"))?;
                let more = if is_full { "there may be more: " } else { "" };
                printer.note(&format!(
                    "\n{more}each mistake once: brokkr errors {stack}; the whole chain: brokkr why {stack} --agent NAME"
                ));
            }
            Ok(())
        }
    }
}

/// The first agents on which something is wrong, and how many rows were looked at for that.
async fn stuck(stack: &Name, client: &Client) -> Result<(Vec<StackStatus>, usize), Failure> {
    let mut query = PageQuery::largest();
    let (mut stuck, mut seen) = (Vec::new(), 0);
    loop {
        let page = client
            .stack_status(stack.as_str(), &query)
            .await
            .while_trying(&format!("read the status of the stack {stack}"))
            .about(Noun::Stack, stack)?;
        seen += page.items.len();
        stuck.extend(page.items.into_iter().filter(view::reasons::is_worth_telling));
        stuck.truncate(ASKED);
        match page.next {
            Some(next) if stuck.len() < ASKED => query.after = Some(next),
            _ => return Ok((stuck, seen)),
        }
    }
}

//! `brokkr status`: all stacks, or one on each agent.

use std::collections::BTreeMap;

use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use brokkr_api::{Name, StackId};
use brokkr_client::{Client, ClientError};
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::args::Status;
use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view;

/// With more stacks than this, the state of each is left to `brokkr status STACK`.
const ASKED_EACH: usize = 50;

pub async fn run(args: Status, client: &Client, printer: Printer) -> Result<(), Failure> {
    match args.stack {
        None => all(client, printer).await,
        Some(stack) => one(&stack, client, printer).await,
    }
}

async fn all(client: &Client, printer: Printer) -> Result<(), Failure> {
    let items = client.stacks_all().await.while_trying("read the stacks")?;
    let page = Page::whole(items);
    if printer.wants_json() {
        return printer.result(&page, String::new);
    }
    let states = if page.items.len() <= ASKED_EACH {
        states(client, &page.items).await.while_trying("read the state of the stacks")?
    } else {
        BTreeMap::new()
    };
    printer.result(&page, || view::stacks::list(&page.items, &states, Timestamp::now()))
}

async fn states(
    client: &Client,
    stacks: &[Stack],
) -> Result<BTreeMap<StackId, Vec<StackStatus>>, ClientError> {
    let mut asked = JoinSet::new();
    for stack in stacks {
        let (client, id) = (client.clone(), stack.id);
        asked.spawn(async move { (id, client.stack_status_all(&id.to_string()).await) });
    }
    let mut states = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok((id, rows)) = answer {
            states.insert(id, rows?);
        }
    }
    Ok(states)
}

async fn one(stack: &Name, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("read the status of the stack {stack}");
    let items = client.stack_status_all(stack.as_str()).await.while_trying(&action)?;
    let page = Page::whole(items);
    if printer.wants_json() {
        return printer.result(&page, String::new);
    }
    if page.items.is_empty() {
        return printer.data(&format!(
            "no agent is targeted by {stack}: `brokkr apply … --to SELECTOR` or `--to-agent NAME`"
        ));
    }
    printer.data(&view::status::per_agent(&page.items, Timestamp::now()))?;
    let why = why(client, &page.items).await;
    if why.is_empty() { Ok(()) } else { printer.data(&format!("\n{why}")) }
}

/// Why the agents that are not in sync are not, with what is known of the agents themselves.
pub async fn why(client: &Client, rows: &[StackStatus]) -> String {
    let mut agents = BTreeMap::new();
    for row in view::why::told(rows) {
        // Not being allowed to see an agent must not keep anybody from seeing the rest.
        if let Ok(agent) = client.agent(&row.agent_id.to_string()).await {
            agents.insert(row.agent_name.clone(), agent);
        }
    }
    view::why::why(rows, &agents, Timestamp::now())
}

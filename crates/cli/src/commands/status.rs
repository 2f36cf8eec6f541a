//! `brokkr status`: all stacks, or one stack on each agent, once or continuously.

mod all;
mod follow;

use std::collections::BTreeMap;

use brokkr_api::Name;
use brokkr_api::page::Page;
use brokkr_api::status::StackStatus;
use brokkr_client::{ALL, Client, Message, StatusQuery};
use jiff::Timestamp;

use crate::args::Status;
use crate::failure::{About as _, Noun, Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::stacks::overview;

pub async fn run(args: Status, client: &Client, printer: Printer) -> Result {
    let most = printer.rows(args.rows);
    let Some(stack) = args.stack else {
        return if args.watch {
            follow::run(client, printer).await
        } else {
            all::run(most, client, printer).await
        };
    };
    let query = StatusQuery { state: args.state, selector: args.selector };
    if args.watch {
        watch(&stack, &query, client, printer).await
    } else {
        one(&stack, &query, most, client, printer).await
    }
}

async fn read(stack: &Name, query: &StatusQuery, most: usize, client: &Client) -> Result<Page<StackStatus>> {
    client
        .stack_status_up_to(stack.as_str(), query, most)
        .await
        .while_trying(&format!("read the status of the stack {stack}"))
        .about(Noun::Stack, stack)
}

async fn one(stack: &Name, query: &StatusQuery, most: usize, client: &Client, printer: Printer) -> Result {
    let page = printer.with_spinner("reading the status", read(stack, query, most, client)).await?;
    printer.show(&page)?;
    if !printer.is_for_people() {
        return Ok(());
    }
    let reasons = reasons(client, &page.items).await;
    if !reasons.is_empty() {
        printer.data(&format!("\n{reasons}"))?;
    }
    if page.next.is_some() {
        printer.note_truncated(page.items.len(), None);
        if let Ok(summary) = client.stack_summary(stack.as_str()).await {
            printer.note(&overview(&summary));
        }
    }
    Ok(())
}

/// Prints the current rows, then changes. The stream is opened first, so that no change is missed between the two.
async fn watch(stack: &Name, query: &StatusQuery, client: &Client, printer: Printer) -> Result {
    let action = format!("watch the status of the stack {stack}");
    let mut changes = client.follow_status(stack.as_str());
    changes.begin().await.while_trying(&action).about(Noun::Stack, stack)?;
    let mut output = printer.stream();
    let rows = read(stack, query, ALL, client).await?.items;
    let mut is_open = output.items("status", &rows)?;
    if rows.is_empty() && printer.is_for_people() {
        printer.note("nothing reported yet; waiting for agents");
    }
    let mut known: BTreeMap<_, _> = rows.into_iter().map(|row| (row.agent_id, row)).collect();
    while is_open {
        match changes.next().await.while_trying(&action)? {
            Message::Reset => {
                printer.warn("the broker was restored; showing the current state");
                is_open = output.items("status", &read(stack, query, ALL, client).await?.items)?;
            }
            Message::Item(row) => {
                // Rows have no labels: the list above determined which agents match.
                let matches = query.state.is_none_or(|state| state == row.state)
                    && (query.selector.is_none() || known.contains_key(&row.agent_id));
                let is_new = known.insert(row.agent_id, row.clone()).as_ref() != Some(&row);
                if matches && is_new {
                    is_open = output.items("status", &[row])?;
                }
            }
        }
    }
    Ok(())
}

/// Explains why agents are not in sync.
pub async fn reasons(client: &Client, rows: &[StackStatus]) -> String {
    let mut agents = BTreeMap::new();
    for row in view::reasons::shown(rows) {
        // An agent that the user is not allowed to read is left out.
        if let Ok(agent) = client.agent(&row.agent_id.to_string()).await {
            agents.insert(row.agent_name.clone(), agent);
        }
    }
    view::reasons::reasons(rows, &agents, Timestamp::now())
}

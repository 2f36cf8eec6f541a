//! `brokkr status`: all stacks, or one on each agent, once or on and on.

mod all;
mod follow;

use std::collections::BTreeMap;

use brokkr_api::Name;
use brokkr_api::page::Page;
use brokkr_api::status::StackStatus;
use brokkr_client::{ALL, Client, Message, StatusQuery};
use jiff::Timestamp;

use crate::args::Status;
use crate::failure::{About as _, Failure, Noun, WhileTrying as _};
use crate::printer::Printer;
use crate::view;
use crate::view::stacks::as_a_whole;

pub async fn run(args: Status, client: &Client, printer: Printer) -> Result<(), Failure> {
    let most = printer.rows(args.most);
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

async fn read(
    stack: &Name,
    query: &StatusQuery,
    most: usize,
    client: &Client,
) -> Result<Page<StackStatus>, Failure> {
    client
        .stack_status_up_to(stack.as_str(), query, most)
        .await
        .while_trying(&format!("read the status of the stack {stack}"))
        .about(Noun::Stack, stack)
}

async fn one(
    stack: &Name,
    query: &StatusQuery,
    most: usize,
    client: &Client,
    printer: Printer,
) -> Result<(), Failure> {
    let page = printer.patiently("reading the status", read(stack, query, most, client)).await?;
    printer.show(&page)?;
    if !printer.is_for_people() {
        return Ok(());
    }
    let reasons = reasons(client, &page.items).await;
    if !reasons.is_empty() {
        printer.data(&format!("\n{reasons}"))?;
    }
    if page.next.is_some() {
        printer.cut(page.items.len(), None);
        if let Ok(summary) = client.stack_summary(stack.as_str()).await {
            printer.note(&as_a_whole(&summary));
        }
    }
    Ok(())
}

/// What is there, then every change. The stream is begun first, so that nothing falls between the two.
async fn watch(stack: &Name, query: &StatusQuery, client: &Client, printer: Printer) -> Result<(), Failure> {
    let action = format!("follow the status of the stack {stack}");
    let mut changes = client.follow_status(stack.as_str());
    changes.begin().await.while_trying(&action).about(Noun::Stack, stack)?;
    let mut told = printer.stream();
    let rows = read(stack, query, ALL, client).await?.items;
    let mut is_read = told.items("status", &rows)?;
    if rows.is_empty() && printer.is_for_people() {
        printer.note("nothing to show yet; waiting for agents to report");
    }
    let mut known: BTreeMap<_, _> = rows.into_iter().map(|row| (row.agent_id, row)).collect();
    while is_read {
        match changes.next().await.while_trying(&action)? {
            Message::Reset => {
                printer.warn("the broker's history was restored: what follows is as of now");
                is_read = told.items("status", &read(stack, query, ALL, client).await?.items)?;
            }
            Message::Item(row) => {
                // Labels do not travel with a row: who is wanted was said by the list.
                let is_wanted = query.state.is_none_or(|state| state == row.state)
                    && (query.selector.is_none() || known.contains_key(&row.agent_id));
                let is_news = known.insert(row.agent_id, row.clone()).as_ref() != Some(&row);
                if is_wanted && is_news {
                    is_read = told.items("status", &[row])?;
                }
            }
        }
    }
    Ok(())
}

/// Why the agents that are not in sync are not, with what is known of the agents themselves.
pub async fn reasons(client: &Client, rows: &[StackStatus]) -> String {
    let mut agents = BTreeMap::new();
    for row in view::reasons::told(rows) {
        // Not being allowed to see an agent must not keep anybody from seeing the rest.
        if let Ok(agent) = client.agent(&row.agent_id.to_string()).await {
            agents.insert(row.agent_name.clone(), agent);
        }
    }
    view::reasons::reasons(rows, &agents, Timestamp::now())
}

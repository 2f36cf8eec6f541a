//! `brokkr status`: all stacks, with the counts of their agents by state.

use std::collections::BTreeMap;

use brokkr_api::StackId;
use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackSummary;
use brokkr_client::{Client, ClientError};
use tokio::task::JoinSet;

use crate::failure::{Result, WhileTrying as _};
use crate::printer::Printer;
use crate::view::stacks::StackLine;

/// With more stacks than this, the counts are not read; `brokkr status STACK` shows them.
pub const MOST_WITH_COUNTS: usize = 200;
/// Concurrent requests.
const CONCURRENCY: usize = 16;

pub async fn run(most: usize, client: &Client, printer: Printer) -> Result {
    let read = async {
        let Page { items, next, total } = client.stacks_up_to(most).await.while_trying("list the stacks")?;
        let items = lines(client, items).await.while_trying("read the status of the stacks")?;
        Ok(Page { items, next, total })
    };
    let page = printer.with_spinner("reading the stacks", read).await?;
    printer.show(&page)?;
    if !printer.is_for_people() {
        return Ok(());
    }
    note_if_too_many(page.items.len(), printer);
    if page.next.is_some() {
        printer.note_truncated(page.items.len(), client.stacks_counted().await.ok().flatten());
    }
    Ok(())
}

pub fn note_if_too_many(stacks: usize, printer: Printer) {
    if stacks > MOST_WITH_COUNTS {
        printer.note("too many stacks to count the agents of each; use brokkr status STACK");
    }
}

async fn lines(client: &Client, stacks: Vec<Stack>) -> Result<Vec<StackLine>, ClientError> {
    let ids: Vec<StackId> = stacks.iter().map(|stack| stack.id).collect();
    let mut summaries =
        if ids.len() <= MOST_WITH_COUNTS { counts(client, &ids).await? } else { BTreeMap::new() };
    let line = |stack: Stack| StackLine { summary: summaries.remove(&stack.id), stack };
    Ok(stacks.into_iter().map(line).collect())
}

/// Reads the counts of these stacks.
pub async fn counts(
    client: &Client,
    stacks: &[StackId],
) -> Result<BTreeMap<StackId, StackSummary>, ClientError> {
    let mut summaries = BTreeMap::new();
    for chunk in stacks.chunks(CONCURRENCY) {
        let mut requests = JoinSet::new();
        for id in chunk.iter().copied() {
            let client = client.clone();
            requests.spawn(async move { (id, client.stack_summary(&id.to_string()).await) });
        }
        while let Some(result) = requests.join_next().await {
            if let Ok((id, summary)) = result {
                summaries.insert(id, summary?);
            }
        }
    }
    Ok(summaries)
}

//! `brokkr status`: all stacks, with how far each is.

use std::collections::BTreeMap;

use brokkr_api::StackId;
use brokkr_api::page::Page;
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackSummary;
use brokkr_client::{Client, ClientError};
use tokio::task::JoinSet;

use crate::failure::{Failure, WhileTrying as _};
use crate::printer::Printer;
use crate::view::stacks::StackLine;

/// With more stacks than this, the figures of each are left to `brokkr status STACK`.
pub const ASKED_EACH: usize = 200;
/// Questions that are open at a time.
const AT_ONCE: usize = 16;

pub async fn run(most: usize, client: &Client, printer: Printer) -> Result<(), Failure> {
    let read = async {
        let Page { items, next, total } = client.stacks_up_to(most).await.while_trying("read the stacks")?;
        let items = lines(client, items).await.while_trying("read the state of the stacks")?;
        Ok(Page { items, next, total })
    };
    let page = printer.patiently("reading the stacks", read).await?;
    printer.show(&page)?;
    if !printer.is_for_people() {
        return Ok(());
    }
    tell_if_too_many(page.items.len(), printer);
    if page.next.is_some() {
        printer.cut(page.items.len(), client.stacks_counted().await.ok().flatten());
    }
    Ok(())
}

pub fn tell_if_too_many(stacks: usize, printer: Printer) {
    if stacks > ASKED_EACH {
        printer.note("with so many stacks, how far each is: brokkr status STACK");
    }
}

async fn lines(client: &Client, stacks: Vec<Stack>) -> Result<Vec<StackLine>, ClientError> {
    let asked: Vec<StackId> = stacks.iter().map(|stack| stack.id).collect();
    let mut summaries =
        if asked.len() <= ASKED_EACH { figures(client, &asked).await? } else { BTreeMap::new() };
    let line = |stack: Stack| StackLine { summary: summaries.remove(&stack.id), stack };
    Ok(stacks.into_iter().map(line).collect())
}

/// The figures of each of these stacks.
pub async fn figures(
    client: &Client,
    stacks: &[StackId],
) -> Result<BTreeMap<StackId, StackSummary>, ClientError> {
    let mut summaries = BTreeMap::new();
    for some in stacks.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for id in some.iter().copied() {
            let client = client.clone();
            asked.spawn(async move { (id, client.stack_summary(&id.to_string()).await) });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok((id, summary)) = answer {
                summaries.insert(id, summary?);
            }
        }
    }
    Ok(summaries)
}

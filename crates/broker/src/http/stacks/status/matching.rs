//! Pages of the status of a stack that are filtered, sorted or counted in the index, by what agents have last reported.

use std::sync::Arc;

use brokkr_api::page::{Page, Sort};
use brokkr_api::stacks::Stack;
use brokkr_api::status::StackStatus;
use brokkr_api::{AgentId, ErrorCode, Selector, SequenceId, StackId};
use futures::TryStreamExt as _;
use roaring::RoaringBitmap;

use super::{StackOnAgent, StatusQuery, status};
use crate::domain::fleet::{Outcome, StackView, StoredOutcome, state_of};
use crate::error::{ApiError, ApiResult};
use crate::http::paging::limit;
use crate::index::{AgentCursor, Index};
use crate::state::Broker;
use crate::store::agents::agent_ids_present;
use crate::store::outcomes::outcomes_of_stacks;
use crate::store::stack_status::{stack_status_fetch, stack_status_with_reason};

/// The rows of a page, and the number of all rows, if it was asked for.
#[derive(Debug, Default)]
struct Found {
    /// One more than the page holds, if there are more.
    agents: Vec<(AgentId, String)>,
    total: Option<u64>,
}

/// Returns a page of the rows that match. A row that has changed since the index was last updated is left out if it no longer does.
pub async fn matching_page(
    broker: &Broker,
    principal: &str,
    stack: &Stack,
    query: &StatusQuery,
    selector: Option<&Selector>,
) -> ApiResult<Page<StackStatus>> {
    let (sort, limit) = (query.sort.unwrap_or_default(), limit(query.limit));
    let bad = || ApiError::invalid_request("invalid `after`");
    let after =
        query.after.as_deref().map(|text| AgentCursor::read(sort, text).ok_or_else(bad)).transpose()?;
    let pool = &broker.pool;
    let failing = match &query.error {
        None => None,
        Some(reason) => Some(stack_status_with_reason(pool, &stack.project, stack.id, reason).await?),
    };
    let present = match query.presence {
        None => None,
        Some(presence) => Some(agent_ids_present(pool, presence).await?),
    };
    let only = failing.into_iter().chain(present).collect();
    let (id, newest) = (stack.id, stack.sequence_id);
    let rows =
        Rows { id, newest, query: query.clone(), selector: selector.cloned(), only, sort, after, limit };
    let rows = Arc::new(rows);
    let rows_of_known = Arc::clone(&rows);
    let found = match broker.views.compute(principal, move |index| rows_of_known.find(index, None)).await?? {
        Some(found) => found,
        None => {
            let stored: Vec<StoredOutcome> = outcomes_of_stacks(pool, &[id]).try_collect().await?;
            broker
                .views
                .compute(principal, move |index| rows.find(index, Some(&stored)))
                .await??
                .unwrap_or_default()
        }
    };
    let ids: Vec<AgentId> = found.agents.iter().map(|(agent, _)| *agent).collect();
    let mut reports = stack_status_fetch(pool, &stack.project, stack.id, &ids).await?;
    let cursor =
        |(id, name): &(AgentId, String)| if sort.is_by_name() { name.clone() } else { id.to_string() };
    let page = Page::cut(found.agents, limit, cursor);
    let snapshot = broker.index.snapshot();
    let to_item = |(agent, name): (AgentId, String)| {
        let (known, report) = (StackOnAgent::of(&snapshot, stack.id, agent), reports.remove(&agent));
        let is_row = report.is_some() || known.is_affected();
        let reason = report.as_ref().map(|report| report.reason.code().to_owned());
        let row = is_row.then(|| status(stack.into(), name, known, report))?;
        let is_in_state = query.state.is_none_or(|state| state == row.state);
        let has_reason = query.error.is_none() || query.error == reason;
        (is_in_state && has_reason).then_some(row)
    };
    let items = page.items.into_iter().filter_map(to_item).collect();
    Ok(Page { items, next: page.next, total: found.total })
}

/// Which rows a page has.
#[derive(Debug)]
struct Rows {
    id: StackId,
    newest: Option<SequenceId>,
    query: StatusQuery,
    selector: Option<Selector>,
    /// A row has to be about an agent in every one of these sets.
    only: Vec<Vec<AgentId>>,
    sort: Sort,
    after: Option<AgentCursor>,
    limit: usize,
}

impl Rows {
    /// Finds the rows. Returns none if the index has dropped the stack, unless what agents have reported on it is given.
    fn find(&self, index: &Index, stored: Option<&[StoredOutcome]>) -> ApiResult<Option<Found>> {
        loop {
            let numbering = index.outcomes().numbering();
            let only: Vec<_> = self.only.iter().map(|agents| index.with_ids(agents)).collect();
            let whole = index.whole_stack(self.id);
            let dropped = || Some(index.dropped_stack(self.id, self.newest, stored?));
            let Some(whole) = whole.or_else(dropped) else { return Ok(None) };
            if !whole.freshness.complete {
                let detail = "this replica still loads what agents have reported";
                return Err(ApiError::new(ErrorCode::BRK3002, detail).retry_after(1));
            }
            let mut matching = matching(&whole.view, &self.query);
            let snapshot = index.snapshot();
            if [whole.numbering, index.outcomes().numbering()] != [numbering; 2] {
                continue;
            }
            if let Some(selector) = &self.selector {
                matching &= snapshot.select(selector);
            }
            for agents in &only {
                matching &= agents;
            }
            let page = snapshot.page(&matching, self.sort, self.after.as_ref(), self.limit);
            let agents = page.into_iter().map(|agent| (agent.id, agent.name.clone())).collect();
            return Ok(Some(Found { agents, total: self.query.count.then_some(matching.len()) }));
        }
    }
}

/// Returns the agents in the state of the query that, if it says so, have reported an older version.
fn matching(stack: &StackView, query: &StatusQuery) -> RoaringBitmap {
    let mut matching = RoaringBitmap::new();
    for group in &stack.groups {
        let mut wanted = [false; 256];
        for (byte, reported) in stack.row.meanings() {
            let state = state_of(group.target, reported);
            let is_behind = reported.is_some_and(|reported| {
                reported.outcome != Outcome::Removed && Some(reported.version) < stack.newest
            });
            wanted[usize::from(byte)] =
                query.state.is_none_or(|only| only == state) && (is_behind || !query.behind);
        }
        stack.row.visit(&group.agents, |slot, byte| {
            if wanted[usize::from(byte)] {
                matching.insert(slot);
            }
        });
    }
    matching
}

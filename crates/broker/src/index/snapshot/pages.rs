//! Pages of agents, sorted.

use std::cmp::Ordering;

use brokkr_api::AgentId;
use brokkr_api::page::Sort;
use roaring::RoaringBitmap;

use super::Snapshot;
use crate::domain::facts::AgentFacts;
use crate::index::labels::Slot;

/// Up to this number of agents, sorting them is faster than walking all names.
const SORT_LIMIT: u64 = 20_000;

/// The last agent of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentCursor {
    Name(String),
    /// Ids begin with the time of their creation.
    Created(AgentId),
}

impl AgentCursor {
    /// Parses a cursor for this sort order.
    #[must_use]
    pub fn read(sort: Sort, text: &str) -> Option<Self> {
        if sort.is_by_name() {
            Some(Self::Name(text.to_owned()))
        } else {
            text.parse().ok().map(Self::Created)
        }
    }

    fn compare(&self, agent: &AgentFacts) -> Ordering {
        match self {
            Self::Name(name) => agent.name.as_str().cmp(name),
            Self::Created(id) => agent.id.cmp(id),
        }
    }
}

impl Snapshot {
    /// Returns up to `limit` of these agents after the cursor, plus one if there are more.
    #[must_use]
    pub fn page(
        &self,
        agents: &RoaringBitmap,
        sort: Sort,
        after: Option<&AgentCursor>,
        limit: usize,
    ) -> Vec<&AgentFacts> {
        let count = limit + 1;
        let directed = |order: Ordering| if sort.is_down() { order.reverse() } else { order };
        let follows = |agent: &AgentFacts| after.is_none_or(|after| directed(after.compare(agent)).is_gt());
        if agents.len() > SORT_LIMIT && sort.is_by_name() {
            let found = |slot: &&Slot| agents.contains(**slot);
            let at = |slot: &Slot| self.at(*slot);
            return if sort.is_down() {
                let end = self.by_name.partition_point(|slot| follows(self.at(*slot)));
                self.by_name[..end].iter().rev().filter(found).take(count).map(at).collect()
            } else {
                let start = self.by_name.partition_point(|slot| !follows(self.at(*slot)));
                self.by_name[start..].iter().filter(found).take(count).map(at).collect()
            };
        }
        let order = |one: &&AgentFacts, other: &&AgentFacts| {
            directed(if sort.is_by_name() { one.name.cmp(&other.name) } else { one.id.cmp(&other.id) })
        };
        let mut page: Vec<&AgentFacts> = agents.iter().map(|slot| self.at(slot)).collect();
        page.retain(|agent| follows(agent));
        if page.len() > count {
            page.select_nth_unstable_by(count, order);
            page.truncate(count);
        }
        page.sort_unstable_by(order);
        page
    }
}

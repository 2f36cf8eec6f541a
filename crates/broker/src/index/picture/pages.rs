//! Pages of agents, in the order that is asked for.

use std::cmp::Ordering;

use brokkr_api::AgentId;
use brokkr_api::page::Sort;
use roaring::RoaringBitmap;

use super::Picture;
use crate::domain::facts::AgentFacts;
use crate::index::labels::Slot;

/// Up to so many agents, sorting those is quicker than walking all names.
const FEW: u64 = 20_000;

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Name(String),
    /// Ids begin with the time at which they were made.
    Created(AgentId),
}

impl Place {
    /// Reads what was handed out for this order.
    #[must_use]
    pub fn read(sort: Sort, text: &str) -> Option<Self> {
        if sort.is_by_name() {
            Some(Self::Name(text.to_owned()))
        } else {
            text.parse().ok().map(Self::Created)
        }
    }

    fn of(&self, agent: &AgentFacts) -> Ordering {
        match self {
            Self::Name(name) => agent.name.as_str().cmp(name),
            Self::Created(id) => agent.id.cmp(id),
        }
    }
}

impl Picture {
    /// A page of these agents behind a place, one more than `limit` if there are more.
    #[must_use]
    pub fn page(
        &self,
        agents: &RoaringBitmap,
        sort: Sort,
        after: Option<&Place>,
        limit: usize,
    ) -> Vec<&AgentFacts> {
        let most = limit + 1;
        let turned = |order: Ordering| if sort.is_down() { order.reverse() } else { order };
        let behind = |agent: &AgentFacts| after.is_none_or(|after| turned(after.of(agent)).is_gt());
        if agents.len() > FEW && sort.is_by_name() {
            let found = |slot: &&Slot| agents.contains(**slot);
            let at = |slot: &Slot| self.at(*slot);
            return if sort.is_down() {
                let end = self.by_name.partition_point(|slot| behind(self.at(*slot)));
                self.by_name[..end].iter().rev().filter(found).take(most).map(at).collect()
            } else {
                let start = self.by_name.partition_point(|slot| !behind(self.at(*slot)));
                self.by_name[start..].iter().filter(found).take(most).map(at).collect()
            };
        }
        let order = |one: &&AgentFacts, other: &&AgentFacts| {
            turned(if sort.is_by_name() { one.name.cmp(&other.name) } else { one.id.cmp(&other.id) })
        };
        let mut page: Vec<&AgentFacts> = agents.iter().map(|slot| self.at(slot)).collect();
        page.retain(|agent| behind(agent));
        if page.len() > most {
            page.select_nth_unstable_by(most, order);
            page.truncate(most);
        }
        page.sort_unstable_by(order);
        page
    }
}

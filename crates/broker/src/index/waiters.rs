//! Who waits in a long poll. There are tens of thousands, so each is kept small.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use brokkr_api::AgentId;
use tokio::sync::Notify;

use super::{Concerned, Index};

#[derive(Debug, Default)]
pub struct Waiters {
    by_agent: HashMap<AgentId, Bells>,
}

/// Nearly always one per agent; two when an agent reconnects before its old request is noticed to be gone.
#[derive(Debug)]
enum Bells {
    One(Arc<Notify>),
    Several(Vec<Arc<Notify>>),
}

impl Bells {
    fn as_slice(&self) -> &[Arc<Notify>] {
        match self {
            Self::One(bell) => std::slice::from_ref(bell),
            Self::Several(bells) => bells,
        }
    }

    fn ring(&self) -> u64 {
        self.as_slice().iter().map(|bell| bell.notify_one()).count() as u64
    }
}

impl Waiters {
    pub fn register(&mut self, agent: AgentId) -> Arc<Notify> {
        let bell = Arc::new(Notify::new());
        match self.by_agent.entry(agent) {
            Entry::Vacant(place) => {
                place.insert(Bells::One(Arc::clone(&bell)));
            }
            Entry::Occupied(mut place) => {
                let mut bells = place.get().as_slice().to_vec();
                bells.push(Arc::clone(&bell));
                place.insert(Bells::Several(bells));
            }
        }
        bell
    }

    pub fn leave(&mut self, agent: AgentId, bell: &Arc<Notify>) {
        let Entry::Occupied(mut place) = self.by_agent.entry(agent) else { return };
        let mut others = place.get().as_slice().to_vec();
        others.retain(|other| !Arc::ptr_eq(other, bell));
        match others.pop() {
            None => drop(place.remove()),
            Some(last) if others.is_empty() => drop(place.insert(Bells::One(last))),
            Some(last) => {
                others.push(last);
                place.insert(Bells::Several(others));
            }
        }
    }

    /// Wakes those who are concerned, and tells how many polls that were.
    pub fn wake(&self, concerned: &Concerned<'_>) -> u64 {
        // Whichever are fewer are walked through.
        if concerned.len() > self.by_agent.len() {
            let waiting = self.by_agent.iter().filter(|(agent, _)| concerned.contains(**agent));
            return waiting.map(|(_, bells)| bells.ring()).sum();
        }
        concerned.iter().filter_map(|agent| self.by_agent.get(&agent)).map(Bells::ring).sum()
    }

    pub fn wake_all(&self) -> u64 {
        self.by_agent.values().map(Bells::ring).sum()
    }

    pub fn len(&self) -> usize {
        self.by_agent.len()
    }
}

/// A registered long poll; leaves the list when dropped, however the request ended.
#[derive(Debug)]
pub struct Waiting {
    index: Arc<Index>,
    agent: AgentId,
    bell: Arc<Notify>,
}

impl Waiting {
    pub(super) fn new(index: Arc<Index>, agent: AgentId, bell: Arc<Notify>) -> Self {
        Self { index, agent, bell }
    }

    /// Returns when something changed that concerns the agent; its answer may still be the same. A change before the call counts.
    pub async fn woken(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.waiters().leave(self.agent, &self.bell);
    }
}

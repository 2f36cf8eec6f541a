//! The agents that wait in a long poll. There are tens of thousands, so each entry is small.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use brokkr_api::AgentId;
use tokio::sync::Notify;

use super::{Affected, Index};

#[derive(Debug, Default)]
pub struct Waiters {
    by_agent: HashMap<AgentId, Polls>,
}

/// Nearly always one per agent; two if an agent reconnects before the loss of its old connection is noticed.
#[derive(Debug)]
enum Polls {
    One(Arc<Notify>),
    Several(Vec<Arc<Notify>>),
}

impl Polls {
    fn as_slice(&self) -> &[Arc<Notify>] {
        match self {
            Self::One(notify) => std::slice::from_ref(notify),
            Self::Several(polls) => polls,
        }
    }

    fn notify(&self) -> u64 {
        self.as_slice().iter().map(|notify| notify.notify_one()).count() as u64
    }
}

impl Waiters {
    pub fn register(&mut self, agent: AgentId) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        match self.by_agent.entry(agent) {
            Entry::Vacant(entry) => {
                entry.insert(Polls::One(Arc::clone(&notify)));
            }
            Entry::Occupied(mut entry) => {
                let mut polls = entry.get().as_slice().to_vec();
                polls.push(Arc::clone(&notify));
                entry.insert(Polls::Several(polls));
            }
        }
        notify
    }

    pub fn leave(&mut self, agent: AgentId, notify: &Arc<Notify>) {
        let Entry::Occupied(mut entry) = self.by_agent.entry(agent) else { return };
        let mut others = entry.get().as_slice().to_vec();
        others.retain(|other| !Arc::ptr_eq(other, notify));
        match others.pop() {
            None => drop(entry.remove()),
            Some(last) if others.is_empty() => drop(entry.insert(Polls::One(last))),
            Some(last) => {
                others.push(last);
                entry.insert(Polls::Several(others));
            }
        }
    }

    /// Wakes the affected agents; returns the number of polls.
    pub fn wake(&self, affected: &Affected<'_>) -> u64 {
        // Iterates over the smaller set.
        if affected.len() > self.by_agent.len() {
            let waiting = self.by_agent.iter().filter(|(agent, _)| affected.contains(**agent));
            return waiting.map(|(_, polls)| polls.notify()).sum();
        }
        affected.iter().filter_map(|agent| self.by_agent.get(&agent)).map(Polls::notify).sum()
    }

    /// Wakes agents that no longer exist, so that their polls end; returns the number of polls.
    pub fn wake_deleted(&self, agents: &[AgentId]) -> u64 {
        agents.iter().filter_map(|agent| self.by_agent.get(agent)).map(Polls::notify).sum()
    }

    pub fn wake_all(&self) -> u64 {
        self.by_agent.values().map(Polls::notify).sum()
    }

    pub fn len(&self) -> usize {
        self.by_agent.len()
    }
}

/// A registered long poll; unregistered when dropped.
#[derive(Debug)]
pub struct Waiting {
    index: Arc<Index>,
    agent: AgentId,
    notify: Arc<Notify>,
}

impl Waiting {
    pub(super) fn new(index: Arc<Index>, agent: AgentId, notify: Arc<Notify>) -> Self {
        Self { index, agent, notify }
    }

    /// Resolves after a change that affects the agent; its envelope may still be the same. A change since the
    /// registration counts, too.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.waiters().leave(self.agent, &self.notify);
    }
}

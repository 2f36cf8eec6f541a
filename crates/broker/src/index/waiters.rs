//! Who waits in a long poll, and for a change of what.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brokkr_api::AgentId;
use tokio::sync::Notify;

use super::Index;

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// What it already has: it is woken for anything else.
    etag: String,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
pub struct Waiters {
    // Nearly always one per agent; two when an agent reconnects before its old request is noticed to be gone.
    by_agent: HashMap<AgentId, Vec<Waiter>>,
    last_ticket: u64,
}

impl Waiters {
    pub fn register(&mut self, agent: AgentId, etag: &str) -> (u64, Arc<Notify>) {
        self.last_ticket += 1;
        let bell = Arc::new(Notify::new());
        let waiter = Waiter { ticket: self.last_ticket, etag: etag.to_owned(), bell: Arc::clone(&bell) };
        self.by_agent.entry(agent).or_default().push(waiter);
        (self.last_ticket, bell)
    }

    pub fn leave(&mut self, agent: AgentId, ticket: u64) {
        if let Some(waiters) = self.by_agent.get_mut(&agent) {
            waiters.retain(|waiter| waiter.ticket != ticket);
            if waiters.is_empty() {
                self.by_agent.remove(&agent);
            }
        }
    }

    /// Those of the agents that wait here. Walks the smaller of the two sets.
    pub fn among(&self, agents: &HashSet<AgentId>) -> Vec<AgentId> {
        if agents.len() <= self.by_agent.len() {
            agents.iter().filter(|agent| self.by_agent.contains_key(agent)).copied().collect()
        } else {
            self.by_agent.keys().filter(|agent| agents.contains(agent)).copied().collect()
        }
    }

    /// Wakes those that have something else than the answer now is; all of them if `in_any_case`.
    pub fn wake(&self, agent: AgentId, etag: Option<&str>, in_any_case: bool) {
        for waiter in self.by_agent.get(&agent).into_iter().flatten() {
            if in_any_case || etag != Some(waiter.etag.as_str()) {
                waiter.bell.notify_one();
            }
        }
    }

    pub fn wake_all(&self) {
        self.by_agent.values().flatten().for_each(|waiter| waiter.bell.notify_one());
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
    ticket: u64,
    bell: Arc<Notify>,
}

impl Waiting {
    pub(super) fn new(index: Arc<Index>, agent: AgentId, ticket: u64, bell: Arc<Notify>) -> Self {
        Self { index, agent, ticket, bell }
    }

    /// Returns when something changed for the agent. A change before the call counts.
    pub async fn woken(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.waiters().leave(self.agent, self.ticket);
    }
}

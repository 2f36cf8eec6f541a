//! Who waits in a long poll.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use brokkr_api::AgentId;
use tokio::sync::Notify;

use super::Index;

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
pub struct Waiters {
    // Nearly always one per agent; two when an agent reconnects before its old request is noticed to be gone.
    by_agent: HashMap<AgentId, Vec<Waiter>>,
    last_ticket: u64,
}

impl Waiters {
    pub fn register(&mut self, agent: AgentId) -> (u64, Arc<Notify>) {
        self.last_ticket += 1;
        let bell = Arc::new(Notify::new());
        let waiter = Waiter { ticket: self.last_ticket, bell: Arc::clone(&bell) };
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

    /// Wakes those of the agents that wait here. Walks the smaller of the two sets.
    pub fn wake(&self, agents: &HashSet<AgentId>) {
        let ring = |waiters: &Vec<Waiter>| waiters.iter().for_each(|waiter| waiter.bell.notify_one());
        if agents.len() <= self.by_agent.len() {
            agents.iter().filter_map(|agent| self.by_agent.get(agent)).for_each(ring);
        } else {
            let waiting = self.by_agent.iter().filter(|(agent, _)| agents.contains(agent));
            waiting.for_each(|(_, waiters)| ring(waiters));
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

    /// Returns when something changed that concerns the agent; its answer may still be the same. A change before the call counts.
    pub async fn woken(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.waiters().leave(self.agent, self.ticket);
    }
}

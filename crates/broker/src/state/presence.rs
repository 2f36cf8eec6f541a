//! When agents were last seen. Kept in memory and stored by `tasks::presence`, so that a poll writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brokkr_api::AgentId;
use brokkr_api::agents::Agent;
use jiff::Timestamp;

use crate::domain::presence::{POLL_SECONDS, presence};
use crate::domain::why::Refused;
use crate::store::presence::SeenAgent;

#[derive(Clone, Copy, Debug)]
struct LastPoll {
    at: Timestamp,
    poll_seconds: u32,
    allows_upgrades: bool,
    stored: bool,
}

#[derive(Clone, Debug)]
struct LastRefusal {
    refused: Refused,
    stored: bool,
}

/// The last poll of each agent, as far as this replica has seen it.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    polls: Arc<Mutex<HashMap<AgentId, LastPoll>>>,
    /// The last refused assertion for each existing agent. Anyone can send one, so it must cost next to nothing: it is
    /// stored like presence, never by the request.
    refusals: Arc<Mutex<HashMap<AgentId, LastRefusal>>>,
}

impl Presence {
    /// Records a poll. The wait that it asks for is the polling interval of the agent. What it announces may change while the agent
    /// runs.
    pub fn seen(&self, agent: AgentId, wait: Option<u64>, allows_upgrades: bool) {
        let wait = wait.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or_default();
        let (at, poll_seconds) = (Timestamp::now(), wait.max(POLL_SECONDS));
        let poll = LastPoll { at, poll_seconds, allows_upgrades, stored: false };
        lock(&self.polls).insert(agent, poll);
    }

    /// Returns when this replica last saw the agent.
    pub fn last_seen(&self, agent: AgentId) -> Option<Timestamp> {
        lock(&self.polls).get(&agent).map(|poll| poll.at)
    }

    /// Records a refused assertion in the name of an agent that exists.
    pub fn refused(&self, agent: AgentId, because: &str) {
        let refused = Refused { at: Timestamp::now(), because: because.to_owned() };
        lock(&self.refusals).insert(agent, LastRefusal { refused, stored: false });
    }

    /// Returns the last assertion that was refused here in the name of the agent.
    pub fn last_refusal(&self, agent: AgentId) -> Option<Refused> {
        lock(&self.refusals).get(&agent).map(|last| last.refused.clone())
    }

    /// Forgets an agent that was deleted.
    pub fn forget(&self, agent: AgentId) {
        lock(&self.polls).remove(&agent);
        lock(&self.refusals).remove(&agent);
    }

    /// Returns how many agents this replica has seen since it started.
    pub fn count(&self) -> usize {
        lock(&self.polls).len()
    }

    /// Returns the agent with its newer presence, if this replica saw it since presence was last stored.
    pub fn shown(&self, mut agent: Agent) -> Agent {
        let poll = lock(&self.polls).get(&agent.id).copied();
        if let Some(poll) = poll.filter(|poll| agent.last_seen_at.is_none_or(|stored| poll.at > stored)) {
            agent.last_seen_at = Some(poll.at);
            agent.presence = presence(Some(poll.at), poll.poll_seconds, Timestamp::now());
        }
        agent
    }

    /// Returns the polls that are not stored yet, sorted.
    pub fn unstored_polls(&self) -> Vec<SeenAgent> {
        let mut unstored: Vec<SeenAgent> = lock(&self.polls)
            .iter()
            .filter(|(_, poll)| !poll.stored)
            .map(|(agent, poll)| {
                let LastPoll { at, poll_seconds, allows_upgrades, .. } = *poll;
                SeenAgent { agent: *agent, at, poll_seconds, allows_upgrades }
            })
            .collect();
        unstored.sort_unstable();
        unstored
    }

    /// Marks polls as stored, unless the agent polled again meanwhile.
    pub fn polls_stored(&self, stored: &[SeenAgent]) {
        let mut polls = lock(&self.polls);
        for stored in stored {
            if let Some(poll) = polls.get_mut(&stored.agent).filter(|poll| poll.at == stored.at) {
                poll.stored = true;
            }
        }
    }

    /// Returns the refusals that are not stored yet, sorted by agent.
    pub fn unstored_refusals(&self) -> Vec<(AgentId, Refused)> {
        let mut unstored: Vec<(AgentId, Refused)> = lock(&self.refusals)
            .iter()
            .filter(|(_, last)| !last.stored)
            .map(|(agent, last)| (*agent, last.refused.clone()))
            .collect();
        unstored.sort_unstable_by_key(|(agent, _)| *agent);
        unstored
    }

    /// Marks refusals as stored, unless there was another one meanwhile.
    pub fn refusals_stored(&self, stored: &[(AgentId, Refused)]) {
        let mut refusals = lock(&self.refusals);
        for (agent, stored) in stored {
            if let Some(last) = refusals.get_mut(agent).filter(|last| last.refused.at == stored.at) {
                last.stored = true;
            }
        }
    }
}

fn lock<Map>(map: &Mutex<Map>) -> MutexGuard<'_, Map> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

//! When agents were last seen: kept in memory, stored now and then, so that a poll writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_api::agents::Agent;
use jiff::Timestamp;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::domain::presence::{POLL_SECONDS, presence};
use crate::domain::why::Refused;
use crate::store::presence::{Seen, presence_store, refusals_store};

const EVERY: Duration = Duration::from_secs(10);
/// Rows of one statement, so that its locks are short.
const BATCH: usize = 1000;

#[derive(Clone, Copy, Debug)]
struct LastSeen {
    at: Timestamp,
    poll_seconds: u32,
    stored: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Presence {
    agents: Arc<Mutex<HashMap<AgentId, LastSeen>>>,
    /// Who came in the name of an agent and could not prove it: the last one, for each agent that there is. What nobody proved
    /// must cost next to nothing, so it is kept and stored like presence, never by the request.
    refused: Arc<Mutex<HashMap<AgentId, LastRefused>>>,
}

#[derive(Clone, Debug)]
struct LastRefused {
    refused: Refused,
    stored: bool,
}

impl Presence {
    /// With how long the poll may wait: that is how often the agent asks.
    pub fn seen(&self, agent: AgentId, wait: Option<u64>) {
        let wait = wait.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or_default();
        let seen = LastSeen { at: Timestamp::now(), poll_seconds: wait.max(POLL_SECONDS), stored: false };
        self.lock().insert(agent, seen);
    }

    /// When this replica last saw the agent.
    pub fn here(&self, agent: AgentId) -> Option<Timestamp> {
        self.lock().get(&agent).map(|seen| seen.at)
    }

    /// Somebody came in the name of this agent, which exists, and was refused.
    pub fn refused(&self, agent: AgentId, because: &str) {
        let refused = Refused { at: Timestamp::now(), because: because.to_owned() };
        lock(&self.refused).insert(agent, LastRefused { refused, stored: false });
    }

    /// Who was last refused here in the name of the agent.
    pub fn refused_here(&self, agent: AgentId) -> Option<Refused> {
        lock(&self.refused).get(&agent).map(|last| last.refused.clone())
    }

    /// How many agents were seen here since the start.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The agent with what this replica has seen since the last storing.
    pub fn shown(&self, mut agent: Agent) -> Agent {
        let here = self.lock().get(&agent.id).copied();
        if let Some(here) = here.filter(|here| agent.last_seen_at.is_none_or(|stored| here.at > stored)) {
            agent.last_seen_at = Some(here.at);
            agent.presence = presence(Some(here.at), here.poll_seconds, Timestamp::now());
        }
        agent
    }

    /// Stores until told to stop, and once more then.
    pub async fn run(self, pool: PgPool, stop: CancellationToken) {
        loop {
            let stopping = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            self.flush(&pool).await;
            self.flush_refused(&pool).await;
            if stopping {
                return;
            }
        }
    }

    async fn flush(&self, pool: &PgPool) {
        let mut waiting: Vec<Seen> = {
            let agents = self.lock();
            let waiting = agents.iter().filter(|(_, seen)| !seen.stored);
            waiting
                .map(|(agent, seen)| Seen { agent: *agent, at: seen.at, poll_seconds: seen.poll_seconds })
                .collect()
        };
        waiting.sort_unstable();
        for batch in waiting.chunks(BATCH) {
            if let Err(error) = presence_store(pool, batch).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "presence is kept for the next time");
                return;
            }
            let mut agents = self.lock();
            for stored in batch {
                if let Some(seen) = agents.get_mut(&stored.agent).filter(|seen| seen.at == stored.at) {
                    seen.stored = true;
                }
            }
        }
    }

    async fn flush_refused(&self, pool: &PgPool) {
        let mut waiting: Vec<(AgentId, Refused)> = lock(&self.refused)
            .iter()
            .filter(|(_, last)| !last.stored)
            .map(|(agent, last)| (*agent, last.refused.clone()))
            .collect();
        waiting.sort_unstable_by_key(|(agent, _)| *agent);
        for batch in waiting.chunks(BATCH) {
            if let Err(error) = refusals_store(pool, batch).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "who was refused is kept for the next time");
                return;
            }
            let mut refused = lock(&self.refused);
            for (agent, stored) in batch {
                if let Some(last) = refused.get_mut(agent).filter(|last| last.refused.at == stored.at) {
                    last.stored = true;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AgentId, LastSeen>> {
        lock(&self.agents)
    }
}

fn lock<Map>(map: &Mutex<Map>) -> MutexGuard<'_, Map> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

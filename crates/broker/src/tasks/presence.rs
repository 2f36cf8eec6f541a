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
use crate::store::presence::{Seen, presence_store};

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

    fn lock(&self) -> MutexGuard<'_, HashMap<AgentId, LastSeen>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

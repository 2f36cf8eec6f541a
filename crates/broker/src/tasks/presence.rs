//! When agents were last seen: kept in memory, stored now and then, so that a poll writes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_api::agents::Agent;
use jiff::Timestamp;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store::agents::agent_store_presence;

const EVERY: Duration = Duration::from_secs(10);
/// Rows of one statement, so that its locks are short.
const BATCH: usize = 1000;

#[derive(Clone, Copy, Debug)]
struct LastSeen {
    at: Timestamp,
    stored: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Presence {
    agents: Arc<Mutex<HashMap<AgentId, LastSeen>>>,
}

impl Presence {
    pub fn seen(&self, agent: AgentId) {
        self.lock().insert(agent, LastSeen { at: Timestamp::now(), stored: false });
    }

    /// The agent with what this replica has seen since the last storing.
    pub fn shown(&self, mut agent: Agent) -> Agent {
        let here = self.lock().get(&agent.id).map(|seen| seen.at);
        agent.last_seen_at = agent.last_seen_at.max(here);
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
        let mut waiting: Vec<(AgentId, Timestamp)> = {
            let agents = self.lock();
            agents.iter().filter(|(_, seen)| !seen.stored).map(|(agent, seen)| (*agent, seen.at)).collect()
        };
        waiting.sort_unstable();
        for batch in waiting.chunks(BATCH) {
            if let Err(error) = agent_store_presence(pool, batch).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "presence is kept for the next time");
                return;
            }
            let mut agents = self.lock();
            for (agent, at) in batch {
                if let Some(seen) = agents.get_mut(agent).filter(|seen| seen.at == *at) {
                    seen.stored = true;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AgentId, LastSeen>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Agent keys that are not in the index: the previous key, and a key that was registered a moment ago.
//!
//! They are read only if a signature does not match the current key, and cached for a second: forged
//! assertions cause at most one query per second and agent.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_api::ids::Checksum;
use sqlx::PgPool;

use crate::store::StoreError;
use crate::store::agent_keys::{AgentKey, agent_keys_fetch};

const CACHED_FOR: Duration = Duration::from_secs(1);
const CAPACITY: u64 = 10_000;

#[derive(Debug)]
pub struct AgentKeys {
    /// The current key is part of the cache key: after a rotation, old entries are not used.
    known: moka::future::Cache<(AgentId, Checksum), Arc<Vec<AgentKey>>>,
}

impl Default for AgentKeys {
    fn default() -> Self {
        Self { known: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build() }
    }
}

impl AgentKeys {
    /// Returns the same as [`Self::find`] if it needs no query.
    pub async fn cached(&self, agent: AgentId, current_key: &[u8]) -> Option<Arc<Vec<AgentKey>>> {
        self.known.get(&(agent, Checksum::of(current_key))).await
    }

    /// Returns all keys with which the agent may sign now.
    pub async fn find(
        &self,
        pool: &PgPool,
        agent: AgentId,
        current_key: &[u8],
    ) -> Result<Arc<Vec<AgentKey>>, Arc<StoreError>> {
        let fetch = async { agent_keys_fetch(pool, agent).await.map(Arc::new) };
        let key = (agent, Checksum::of(current_key));
        self.known.try_get_with(key, fetch).await.map_err(|error| Arc::clone(&error))
    }
}

//! Keys of agents that the index does not know: the one before, and one that was registered a moment ago.
//!
//! Asked for only where a signature does not fit the key that counts, and remembered for a second: whoever
//! sends forged assertions makes one query a second for each agent, not one for each request.

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::AgentId;
use brokkr_api::ids::Checksum;
use sqlx::PgPool;

use crate::store::StoreError;
use crate::store::agent_keys::{AgentKey, agent_keys_fetch};

const REMEMBERED: Duration = Duration::from_secs(1);
const MOST: u64 = 10_000;

#[derive(Debug)]
pub struct AgentKeys {
    /// By the key that counts here, too: once that is another, what was known is not asked again.
    known: moka::future::Cache<(AgentId, Checksum), Arc<Vec<AgentKey>>>,
}

impl Default for AgentKeys {
    fn default() -> Self {
        Self { known: moka::future::Cache::builder().max_capacity(MOST).time_to_live(REMEMBERED).build() }
    }
}

impl AgentKeys {
    /// All keys with which the agent may sign now.
    pub async fn find(
        &self,
        pool: &PgPool,
        agent: AgentId,
        counts: &[u8],
    ) -> Result<Arc<Vec<AgentKey>>, Arc<StoreError>> {
        let look = async { agent_keys_fetch(pool, agent).await.map(Arc::new) };
        self.known.try_get_with((agent, Checksum::of(counts)), look).await.map_err(|error| Arc::clone(&error))
    }
}

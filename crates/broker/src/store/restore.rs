//! What a restore left: who has still to tell what it holds, who is ahead, what is missing, which contents are wanted.

use std::collections::HashSet;

use brokkr_api::AgentId;
use sqlx::PgPool;
use uuid::Uuid;

use super::{Doing as _, StoreError};

/// Agents that have not answered since all were last asked.
pub async fn restore_agents_to_tell(pool: &PgPool) -> Result<HashSet<AgentId>, StoreError> {
    let ids: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM agents WHERE told < (SELECT asked FROM installation)")
            .fetch_all(pool)
            .await
            .doing("read who has to tell what it holds")?;
    Ok(ids.into_iter().map(AgentId).collect())
}

/// Agents of which a content is wanted.
pub async fn restore_agents_wanted(pool: &PgPool) -> Result<HashSet<AgentId>, StoreError> {
    let ids: Vec<Uuid> = sqlx::query_scalar("SELECT agent_id FROM content_wishes WHERE refused IS NULL")
        .fetch_all(pool)
        .await
        .doing("read whose contents are wanted")?;
    Ok(ids.into_iter().map(AgentId).collect())
}

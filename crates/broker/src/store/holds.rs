//! Which stacks an agent holds.

use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::{AgentId, StackId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Doing as _, StoreError};

/// Replaces the set. Stacks that the broker does not know are kept, too: the agent says that it holds them.
pub async fn holds_replace_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<(), StoreError> {
    let stacks: Vec<Uuid> = stacks.iter().map(|stack| stack.0).collect();
    sqlx::query("DELETE FROM agent_holds WHERE agent_id = $1 AND stack_id <> ALL($2)")
        .bind(agent.0)
        .bind(&stacks)
        .execute(&mut *connection)
        .await
        .doing("forget what the agent no longer holds")?;
    sqlx::query(
        "INSERT INTO agent_holds (agent_id, project, stack_id)
         SELECT $1, coalesce(s.project, $3), held.id
         FROM unnest($2::uuid[]) AS held (id) LEFT JOIN stacks s ON s.id = held.id
         ON CONFLICT DO NOTHING",
    )
    .bind(agent.0)
    .bind(&stacks)
    .bind(DEFAULT_PROJECT)
    .execute(connection)
    .await
    .map(|_| ())
    .doing("store what the agent holds")
}

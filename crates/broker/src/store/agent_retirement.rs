//! Agents that leave: what targets them ends, and what they owed is owed no more.

use brokkr_api::{AgentId, StackId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Doing as _, StoreError};

/// Nothing targets the agent from now on, neither by its labels nor by its name. Answers with the stacks that named it.
pub async fn agent_untarget_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
) -> Result<Vec<(String, StackId)>, StoreError> {
    let doing = "take the agent out of every target";
    sqlx::query(
        "UPDATE agents SET labels = '{}', labels_changed_at = now() WHERE id = $1 AND labels <> '{}'",
    )
    .bind(agent.0)
    .execute(&mut *connection)
    .await
    .doing(doing)?;
    let rows: Vec<(String, Uuid)> =
        sqlx::query_as("DELETE FROM stack_targets WHERE agent_id = $1 RETURNING project, stack_id")
            .bind(agent.0)
            .fetch_all(connection)
            .await
            .doing(doing)?;
    Ok(rows.into_iter().map(|(project, stack)| (project, StackId(stack))).collect())
}

/// Gives the agent up: what it held and reported is forgotten, and by whom and why is kept.
pub async fn agent_abandon_on_conn(
    connection: &mut PgConnection,
    agent: AgentId,
    by: &str,
    because: &str,
) -> Result<(), StoreError> {
    let doing = "give the agent up";
    sqlx::query(
        "UPDATE agents SET status = 'INACTIVE', abandoned_at = now(), abandoned_by = $2, abandoned_because = $3
         WHERE id = $1",
    )
    .bind(agent.0)
    .bind(by)
    .bind(because)
    .execute(&mut *connection)
    .await
    .doing(doing)?;
    for forget in
        ["DELETE FROM agent_holds WHERE agent_id = $1", "DELETE FROM stack_status WHERE agent_id = $1"]
    {
        sqlx::query(forget).bind(agent.0).execute(&mut *connection).await.doing(doing)?;
    }
    Ok(())
}

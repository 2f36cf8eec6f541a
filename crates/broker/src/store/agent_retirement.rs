//! Agents that are retired or abandoned.

use brokkr_api::{AgentId, StackId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};

/// Removes all that makes stacks target the agent: its labels, and the targets that name it. Returns the
/// stacks that named it.
pub async fn agent_untarget_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
) -> Result<Vec<(String, StackId)>> {
    let doing = "remove the agent from all targets";
    sqlx::query(
        "UPDATE agents SET labels = '{}', labels_changed_at = now() WHERE id = $1 AND labels <> '{}'",
    )
    .bind(agent.0)
    .run(&mut *conn, doing)
    .await?;
    let rows: Vec<(String, Uuid)> =
        sqlx::query_as("DELETE FROM stack_targets WHERE agent_id = $1 RETURNING project, stack_id")
            .bind(agent.0)
            .all(conn, doing)
            .await?;
    Ok(rows.into_iter().map(|(project, stack)| (project, StackId(stack))).collect())
}

/// Abandons the agent: deletes what it held and reported, and records by whom and why.
pub async fn agent_abandon_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    by: &str,
    because: &str,
) -> Result<()> {
    let doing = "abandon the agent";
    sqlx::query(
        "UPDATE agents SET status = 'INACTIVE', abandoned_at = now(), abandoned_by = $2, abandoned_because = $3
         WHERE id = $1",
    )
    .bind(agent.0)
    .bind(by)
    .bind(because)
    .run(&mut *conn, doing)
    .await?;
    for forget in
        ["DELETE FROM agent_holds WHERE agent_id = $1", "DELETE FROM stack_status WHERE agent_id = $1"]
    {
        sqlx::query(forget).bind(agent.0).run(&mut *conn, doing).await?;
    }
    Ok(())
}

//! Agents that are retired, abandoned or deleted.

use brokkr_api::{AgentId, StackId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};

/// Rows deleted at once.
const SLICE: i64 = 1000;

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

/// Locks the agent and returns why it cannot be deleted, if it cannot.
pub async fn agent_in_use_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<Option<&'static str>> {
    let row: Option<(bool, bool)> = sqlx::query_as(
        "SELECT a.revoked_at IS NULL,
                EXISTS (SELECT FROM agent_holds h WHERE h.agent_id = a.id AND h.ended_at IS NULL)
         FROM agents a WHERE a.id = $1 FOR UPDATE",
    )
    .bind(agent.0)
    .optional(conn, "lock the agent")
    .await?;
    Ok(match row {
        Some((true, _)) => Some("its keys are not revoked"),
        Some((_, true)) => Some("it holds stacks"),
        Some((false, false)) | None => None,
    })
}

/// Deletes what a revoked agent reported, in batches: outside a transaction, each batch commits by itself. Events of
/// stacks stay.
pub async fn agent_reports_delete_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<()> {
    macro_rules! batch {
        ($table:literal, $condition:literal) => {
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE ctid = ANY(ARRAY(
                    SELECT r.ctid FROM ",
                $table,
                " r JOIN agents a ON a.id = r.agent_id
                    WHERE r.agent_id = $1 AND a.revoked_at IS NOT NULL",
                $condition,
                " LIMIT $2))"
            )
        };
    }
    for sql in [
        batch!("stack_status", ""),
        batch!("agent_holds", " AND r.ended_at IS NOT NULL"),
        batch!("agent_events", ""),
        batch!("agent_upgrade_reports", ""),
        batch!("webhook_alarms", ""),
    ] {
        loop {
            let batch = sqlx::query(sql).bind(agent.0).bind(SLICE);
            let rows = batch.affected(&mut *conn, "delete the reports of the agent").await?;
            if rows < SLICE.unsigned_abs() {
                break;
            }
        }
    }
    Ok(())
}

/// Deletes the agent with its join tokens, approvals and suspensions. Returns the stacks with deleted approvals or suspensions.
pub async fn agent_delete_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<Vec<(String, StackId)>> {
    let doing = "delete the agent";
    agent_reports_delete_on_conn(conn, agent).await?;
    let approved: Vec<(String, Uuid)> =
        sqlx::query_as("DELETE FROM prune_approvals WHERE agent_id = $1 RETURNING project, stack_id")
            .bind(agent.0)
            .all(&mut *conn, doing)
            .await?;
    let suspended: Vec<(String, Uuid)> =
        sqlx::query_as("DELETE FROM suspensions WHERE agent_id = $1 RETURNING project, stack_id")
            .bind(agent.0)
            .all(&mut *conn, doing)
            .await?;
    for sql in
        ["DELETE FROM join_tokens WHERE agent_id = $1 OR rejoins = $1", "DELETE FROM agents WHERE id = $1"]
    {
        sqlx::query(sql).bind(agent.0).run(&mut *conn, doing).await?;
    }
    Ok(approved.into_iter().chain(suspended).map(|(project, stack)| (project, StackId(stack))).collect())
}

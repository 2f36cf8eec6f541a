//! The stacks that an agent holds.

use brokkr_api::agents::HeldStack;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::{AgentId, StackId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};

/// Replaces the set of stacks that the agent holds. Stacks that the database does not know are stored, too.
pub async fn holds_replace_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<()> {
    let stacks: Vec<Uuid> = stacks.iter().map(|stack| stack.0).collect();
    sqlx::query("DELETE FROM agent_holds WHERE agent_id = $1 AND stack_id <> ALL($2)")
        .bind(agent.0)
        .bind(&stacks)
        .run(&mut *conn, "delete stacks that the agent no longer holds")
        .await?;
    sqlx::query(
        "INSERT INTO agent_holds (agent_id, project, stack_id)
         SELECT $1, coalesce(s.project, $3), held.id
         FROM unnest($2::uuid[]) AS held (id) LEFT JOIN stacks s ON s.id = held.id
         ON CONFLICT DO NOTHING",
    )
    .bind(agent.0)
    .bind(&stacks)
    .bind(DEFAULT_PROJECT)
    .run(conn, "store the stacks that the agent holds")
    .await
}

/// Stores the versions that the agent reported of the stacks that it holds.
pub async fn holds_store_versions_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    held: &[HeldStack],
) -> Result<()> {
    if held.is_empty() {
        return Ok(());
    }
    let stacks: Vec<Uuid> = held.iter().map(|held| held.stack_id.0).collect();
    let sequences: Vec<i64> = held.iter().map(|held| held.sequence_id.0).collect();
    let checksums: Vec<Option<Vec<u8>>> =
        held.iter().map(|held| held.checksum.map(|checksum| checksum.0.to_vec())).collect();
    let projects: Vec<&str> = held.iter().map(|held| held.project.as_str()).collect();
    let names: Vec<&str> = held.iter().map(|held| held.stack_name.as_str()).collect();
    let removing: Vec<bool> = held.iter().map(|held| held.removing).collect();
    sqlx::query(
        "UPDATE agent_holds h
         SET sequence_id = t.sequence_id, checksum = t.checksum, reported_project = t.project,
             stack_name = t.name, removing = t.removing, reported_at = now()
         FROM unnest($2::uuid[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::boolean[])
              AS t (stack_id, sequence_id, checksum, project, name, removing)
         WHERE h.agent_id = $1 AND h.stack_id = t.stack_id",
    )
    .bind(agent.0)
    .bind(stacks)
    .bind(sequences)
    .bind(checksums)
    .bind(projects)
    .bind(names)
    .bind(removing)
    .run(conn, "store the versions of held stacks")
    .await
}

/// Records that the agent has reported since all agents were last asked. Returns false if this was recorded
/// before, or if agents were never asked.
///
/// A lock keeps this and `restore_stack_on_conn` apart: either that function sees what this agent holds, or
/// this transaction sees the stack which that function created.
pub async fn holds_mark_reported_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<bool> {
    let open: bool = sqlx::query_scalar(
        "SELECT holds_reported < (SELECT holds_request FROM installation) FROM agents WHERE id = $1",
    )
    .bind(agent.0)
    .one(&mut *conn, "read whether the agent must report")
    .await?;
    if !open {
        return Ok(false);
    }
    let asked: i64 = sqlx::query_scalar("SELECT holds_request FROM installation FOR SHARE")
        .one(&mut *conn, "read the last request to report")
        .await?;
    sqlx::query("UPDATE agents SET holds_reported = $2 WHERE id = $1")
        .bind(agent.0)
        .bind(asked)
        .run(conn, "record that the agent has reported")
        .await
        .map(|()| true)
}

/// Makes the agent an explicit target of the stacks that are not deleted. Returns those that did not name it
/// before.
pub async fn holds_keep_targets_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<Vec<(String, StackId)>> {
    if stacks.is_empty() {
        return Ok(Vec::new());
    }
    let stacks: Vec<Uuid> = stacks.iter().map(|stack| stack.0).collect();
    let kept: Vec<(String, Uuid)> = sqlx::query_as(
        "INSERT INTO stack_targets (project, stack_id, agent_id, kept_at)
         SELECT s.project, s.id, $1, now() FROM stacks s WHERE s.id = ANY($2) AND s.deleted_at IS NULL
         ON CONFLICT DO NOTHING RETURNING project, stack_id",
    )
    .bind(agent.0)
    .bind(stacks)
    .all(conn, "keep the agent as a target")
    .await?;
    Ok(kept.into_iter().map(|(project, stack)| (project, StackId(stack))).collect())
}

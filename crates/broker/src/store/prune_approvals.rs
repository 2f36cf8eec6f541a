//! Approvals of pending prunes.

use brokkr_api::approvals::PruneApproval;
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::stacks::LockedStack;
use super::{Columns as _, Fetch as _, Result};

fn read_approval(row: PgRow) -> Result<PruneApproval, sqlx::Error> {
    Ok(PruneApproval {
        sequence_id: SequenceId(row.field("sequence_id")?),
        objects: row.field::<i32>("objects")?.unsigned_abs(),
        agent_id: row.field::<Option<Uuid>>("agent_id")?.map(AgentId),
        approved_by: row.field("approved_by")?,
        approved_at: row.time("created_at")?,
    })
}

/// Creates an approval, or changes the number of objects of an earlier one.
pub async fn prune_approval_put_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    sequence_id: SequenceId,
    agent: Option<AgentId>,
    objects: i32,
    approved_by: &str,
) -> Result<PruneApproval> {
    sqlx::query(
        "INSERT INTO prune_approvals (project, stack_id, sequence_id, agent_id, objects, approved_by)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (project, stack_id, sequence_id, agent_id)
         DO UPDATE SET objects = excluded.objects, approved_by = excluded.approved_by, created_at = now()
         RETURNING sequence_id, objects, agent_id, approved_by, created_at",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(sequence_id.0)
    .bind(agent.map(|agent| agent.0))
    .bind(objects)
    .bind(approved_by)
    .try_map(read_approval)
    .one(conn, "store the approval")
    .await
}

/// Returns the approvals of one version, those for every agent first.
pub async fn prune_approval_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    sequence_id: SequenceId,
    after: Option<AgentId>,
    limit: usize,
) -> Result<Vec<PruneApproval>> {
    sqlx::query(
        "SELECT sequence_id, objects, agent_id, approved_by, created_at FROM prune_approvals
         WHERE project = $1 AND stack_id = $2 AND sequence_id = $3 AND ($4::uuid IS NULL OR agent_id > $4)
         ORDER BY agent_id NULLS FIRST LIMIT $5",
    )
    .bind(project)
    .bind(stack.0)
    .bind(sequence_id.0)
    .bind(after.map(|agent| agent.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_approval)
    .all(pool, "list the approvals")
    .await
}

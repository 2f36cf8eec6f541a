//! The stacks that agents claim to hold.

use std::collections::HashMap;

use brokkr_api::agents::HeldStack;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Fetch as _, Result, Run as _};
use crate::domain::claims::HoldClaim;

/// How long a claim that has ended is kept, for reports that arrive late.
const ENDED_DAYS: i32 = 30;
/// Rows deleted at once.
const SLICE: i64 = 5000;

/// Returns the claims that the agent makes or made, and whether each is confirmed.
pub async fn holds_fetch_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<HashMap<StackId, bool>> {
    let rows: Vec<(Uuid, bool)> =
        sqlx::query_as("SELECT stack_id, confirmed FROM agent_holds WHERE agent_id = $1")
            .bind(agent.0)
            .all(conn, "read the stacks that the agent holds")
            .await?;
    Ok(rows.into_iter().map(|(stack, confirmed)| (StackId(stack), confirmed)).collect())
}

/// Replaces the claims of the agent. Stacks that the database does not know are stored, too. Claims that the agent no
/// longer makes end.
pub async fn holds_replace_on_conn(
    conn: &mut PgConnection,
    agent: AgentId,
    claims: &[(StackId, HoldClaim)],
) -> Result<()> {
    let stacks: Vec<Uuid> = claims.iter().map(|(stack, _)| stack.0).collect();
    sqlx::query("DELETE FROM agent_holds WHERE agent_id = $1 AND stack_id <> ALL($2) AND NOT confirmed")
        .bind(agent.0)
        .bind(&stacks)
        .run(&mut *conn, "delete claims that the agent no longer makes")
        .await?;
    sqlx::query(
        "UPDATE agent_holds SET ended_at = now()
         WHERE agent_id = $1 AND stack_id <> ALL($2) AND ended_at IS NULL",
    )
    .bind(agent.0)
    .bind(&stacks)
    .run(&mut *conn, "end the claims that the agent no longer makes")
    .await?;
    let released = |claim: &HoldClaim| match claim {
        HoldClaim::Targeted(released) => released.0,
        HoldClaim::Recorded | HoldClaim::Unconfirmed => 0,
    };
    sqlx::query(
        "INSERT INTO agent_holds AS old (agent_id, project, stack_id, confirmed, released_sequence_id)
         SELECT $1, coalesce(s.project, $3), claim.id, claim.confirmed, claim.released
         FROM unnest($2::uuid[], $4::boolean[], $5::bigint[]) AS claim (id, confirmed, released)
         LEFT JOIN stacks s ON s.id = claim.id
         ON CONFLICT (agent_id, stack_id) DO UPDATE SET
            confirmed = excluded.confirmed, ended_at = NULL,
            released_sequence_id = greatest(old.released_sequence_id, excluded.released_sequence_id)
         WHERE old.confirmed <> excluded.confirmed OR old.ended_at IS NOT NULL",
    )
    .bind(agent.0)
    .bind(&stacks)
    .bind(DEFAULT_PROJECT)
    .bind(claims.iter().map(|(_, claim)| *claim != HoldClaim::Unconfirmed).collect::<Vec<_>>())
    .bind(claims.iter().map(|(_, claim)| released(claim)).collect::<Vec<_>>())
    .run(conn, "store the stacks that the agent holds")
    .await
}

/// Records that these versions were released to the agents, which have applied them. Only stacks that target the agent
/// may be given.
pub async fn holds_raise_on_conn(
    conn: &mut PgConnection,
    released: &[(AgentId, StackId, SequenceId)],
) -> Result<()> {
    sqlx::query(
        "UPDATE agent_holds h SET released_sequence_id = greatest(h.released_sequence_id, r.sequence_id)
         FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS r (agent_id, stack_id, sequence_id)
         WHERE h.agent_id = r.agent_id AND h.stack_id = r.stack_id AND h.released_sequence_id < r.sequence_id",
    )
    .bind(released.iter().map(|(agent, _, _)| agent.0).collect::<Vec<_>>())
    .bind(released.iter().map(|(_, stack, _)| stack.0).collect::<Vec<_>>())
    .bind(released.iter().map(|(_, _, sequence)| sequence.0).collect::<Vec<_>>())
    .run(conn, "record the released versions")
    .await
}

/// Returns the newest version that was released to the agent while it was a target; none if it does not hold the stack.
pub async fn hold_released(pool: &PgPool, agent: AgentId, stack: StackId) -> Result<Option<SequenceId>> {
    let released: Option<i64> = sqlx::query_scalar(
        "SELECT released_sequence_id FROM agent_holds
         WHERE agent_id = $1 AND stack_id = $2 AND confirmed AND ended_at IS NULL",
    )
    .bind(agent.0)
    .bind(stack.0)
    .optional(pool, "read which versions were released to the agent")
    .await?;
    Ok(released.map(SequenceId))
}

/// A stack of which an agent may report, although the index does not know that.
#[derive(Clone, Debug)]
pub struct RecordedStack {
    pub project: String,
    pub newest: SequenceId,
    /// The newest version that was released to the agent while it was a target.
    pub released: SequenceId,
}

/// Returns which of these stacks the agent holds or held.
pub async fn holds_recorded(
    pool: &PgPool,
    agent: AgentId,
    stacks: &[StackId],
) -> Result<HashMap<StackId, RecordedStack>> {
    let rows: Vec<(Uuid, String, i64, i64)> = sqlx::query_as(
        "SELECT s.id, s.project, coalesce(greatest(s.newest_sequence_id, s.staged_sequence_id), 0),
                h.released_sequence_id
         FROM agent_holds h JOIN stacks s ON s.id = h.stack_id
         WHERE h.agent_id = $1 AND h.stack_id = ANY($2) AND h.confirmed",
    )
    .bind(agent.0)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .all(pool, "read the stacks that the agent held")
    .await?;
    let read = |(id, project, newest, released)| {
        let (newest, released) = (SequenceId(newest), SequenceId(released));
        (StackId(id), RecordedStack { project, newest, released })
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Deletes claims that ended long ago. Returns how many.
pub async fn holds_delete_ended(pool: &PgPool) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let slice = sqlx::query(
            "DELETE FROM agent_holds WHERE (agent_id, stack_id) IN (
                SELECT agent_id, stack_id FROM agent_holds
                WHERE ended_at < now() - make_interval(days => $1) LIMIT $2)",
        )
        .bind(ENDED_DAYS)
        .bind(SLICE)
        .affected(pool, "delete claims that ended long ago")
        .await?;
        deleted += slice;
        if slice < SLICE.unsigned_abs() {
            return Ok(deleted);
        }
    }
}

/// Stores the versions that the agent reported of the stacks that it claims to hold.
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

//! What agents have last reported, in as few columns as the views of a fleet need.

use brokkr_api::report::Transition;
use brokkr_api::{AgentId, SequenceId, StackId};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use sqlx::PgPool;
use sqlx::postgres::PgRow;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::copy::{CopyConnection, copy_batches};
use super::events::EventCursor;
use super::{Columns as _, Doing as _, Fetch as _, Result, known};
use crate::domain::fleet::{Outcome, Reported, StoredOutcome};

/// Of the stacks that the index knows: see `facts_of_all_stacks_on_conn`.
const ALL: &str = "COPY (
    SELECT stack_id, agent_id, sequence_id, transition FROM stack_status
    WHERE stack_id IN (
        SELECT s.id FROM stacks s
        WHERE s.deleted_at IS NULL
           OR EXISTS (SELECT FROM agent_holds h WHERE h.stack_id = s.id AND h.confirmed AND h.ended_at IS NULL))
    ) TO STDOUT (FORMAT binary)";

/// Rows of one batch.
const BATCH: usize = 5000;

fn reported(sequence: i64, transition: &str) -> Result<Reported, sqlx::Error> {
    let outcome = Outcome::of(&known::<Transition>(transition)?);
    Ok(Reported { version: SequenceId(sequence), outcome })
}

/// Sends what every agent has last reported, in batches. Call it without a statement timeout.
pub async fn outcomes_send_on_conn(
    conn: &mut CopyConnection,
    batches: &mpsc::Sender<Vec<StoredOutcome>>,
) -> Result<()> {
    let read = copy_batches(conn, ALL, BATCH, batches, |row| {
        let (stack, agent) = (StackId(row.uuid()?), AgentId(row.uuid()?));
        let (sequence, transition) = (row.number()?, row.text()?);
        Ok(StoredOutcome { stack, agent, reported: Some(reported(sequence, &transition)?) })
    });
    read.await.doing("read what all agents have reported")
}

/// A report, and what its agent has last reported about the stack: perhaps a later one.
#[derive(Clone, Copy, Debug)]
pub struct FollowedOutcome {
    pub place: EventCursor,
    pub outcome: StoredOutcome,
}

/// Returns up to `limit` reports after a position, in transactions below the horizon, oldest first.
pub async fn outcomes_follow(
    pool: &PgPool,
    after: EventCursor,
    horizon: u64,
    limit: usize,
) -> Result<Vec<FollowedOutcome>> {
    sqlx::query(
        "SELECT e.xid::text::bigint AS xid, e.recorded, e.stack_id, e.agent_id, t.sequence_id, t.transition
         FROM (SELECT xid, recorded, project, stack_id, agent_id FROM events
               WHERE (xid, recorded) > ($1::bigint::text::xid8, $2) AND xid < $3::bigint::text::xid8
               ORDER BY xid, recorded LIMIT $4) e
         LEFT JOIN stack_status t USING (project, stack_id, agent_id)
         ORDER BY e.xid, e.recorded",
    )
    .bind(after.xid.cast_signed())
    .bind(after.recorded)
    .bind(horizon.cast_signed())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .try_map(read_followed)
    .all(pool, "follow what agents have reported")
    .await
}

fn read_followed(row: PgRow) -> Result<FollowedOutcome, sqlx::Error> {
    let outcome = read_outcome(&row)?;
    let xid = row.field::<i64>("xid")?.cast_unsigned();
    Ok(FollowedOutcome { place: EventCursor { xid, recorded: row.field("recorded")? }, outcome })
}

fn read_outcome(row: &PgRow) -> Result<StoredOutcome, sqlx::Error> {
    let (stack, agent) = (StackId(row.field("stack_id")?), AgentId(row.field("agent_id")?));
    Ok(StoredOutcome { stack, agent, reported: read_reported(row)? })
}

fn read_reported(row: &PgRow) -> Result<Option<Reported>, sqlx::Error> {
    let Some(sequence) = row.field::<Option<i64>>("sequence_id")? else { return Ok(None) };
    Ok(Some(reported(sequence, row.field("transition")?)?))
}

/// Returns what agents have last reported about every stack.
pub async fn outcomes_of_agents(pool: &PgPool, agents: &[AgentId]) -> Result<Vec<StoredOutcome>> {
    sqlx::query(
        "SELECT stack_id, agent_id, sequence_id, transition FROM stack_status WHERE agent_id = ANY($1)",
    )
    .bind(agents.iter().map(|agent| agent.0).collect::<Vec<_>>())
    .try_map(|row| read_outcome(&row))
    .all(pool, "read what agents have reported")
    .await
}

/// Returns what agents have last reported about these stacks, row by row.
pub fn outcomes_of_stacks<'a>(pool: &'a PgPool, stacks: &[StackId]) -> BoxStream<'a, Result<StoredOutcome>> {
    let rows = sqlx::query(
        "SELECT t.stack_id, t.agent_id, t.sequence_id, t.transition
         FROM stacks s JOIN stack_status t ON t.project = s.project AND t.stack_id = s.id WHERE s.id = ANY($1)",
    )
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .try_map(|row: PgRow| read_outcome(&row))
    .fetch(pool);
    rows.map(|row| row.doing("read what was reported about the stacks")).boxed()
}

/// Returns the active agents that no longer poll.
pub async fn agents_silent(pool: &PgPool) -> Result<Vec<AgentId>> {
    let silent: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM agents WHERE silent_since IS NOT NULL AND status = 'ACTIVE'")
            .all(pool, "read the silent agents")
            .await?;
    Ok(silent.into_iter().map(AgentId).collect())
}

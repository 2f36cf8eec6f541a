//! Rollouts: one row for each version that is rolled out or widened, and one for each raise of a mark.

use std::collections::HashMap;
use std::time::Duration;

use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Pending, Rollout as Shown, RolloutFigures, StopReason};
use brokkr_api::{AgentId, Selector, SequenceId, StackId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::fleet::NEEDS_APPROVAL;
use super::stacks::LockedStack;
use super::widenings::widening_forget_on_conn;
use super::{Columns as _, Fetch as _, Result, Run as _, known};
use crate::domain::presence::LATE_AFTER;
use crate::domain::release::Clause;
use crate::domain::rollout::survey::{Contacts, Evidence, Raises};
use crate::domain::rollout::verdict::{Contact, VersionReport};
use crate::domain::rollout::{Rollout, watched};
use crate::domain::windows::{Lane, Lanes};

/// A rollout that is under way.
#[derive(Clone, Debug)]
pub struct ActiveRollout {
    pub project: String,
    pub stack: StackId,
    pub sequence_id: SequenceId,
    /// The version that is released to agents that the stack has gained; none if the rollout is that of a version.
    pub widens: Option<SequenceId>,
    pub revision: i64,
    pub rollout: Rollout,
    /// What the agents counted as when they were last looked at.
    pub figures: RolloutFigures,
    /// When the agents were last looked at.
    pub looked_at: Option<Timestamp>,
    /// Since when they have been looked at without a pause.
    pub watched_since: Timestamp,
    pub created_at: Timestamp,
    /// The time of the database.
    pub now: Timestamp,
    /// The transaction in which the rollout began.
    pub begun_by: u64,
}

/// What a look at the agents has shown.
#[derive(Clone, Copy, Debug)]
pub struct RolloutUpdate {
    /// When the agents were looked at.
    pub at: Timestamp,
    pub figures: RolloutFigures,
    pub pending: Option<Pending>,
    pub watched_since: Timestamp,
}

impl ActiveRollout {
    /// Returns how long the agents were watched since the last look, and since when without a pause.
    #[must_use]
    pub fn watched(&self) -> (Duration, Timestamp) {
        watched(self.looked_at, self.watched_since, self.now)
    }

    /// Returns the version that is released.
    fn version(&self) -> SequenceId {
        self.widens.unwrap_or(self.sequence_id)
    }
}

/// Ends the rollout of the stack that is under way, because a newer version or other targets take its place.
pub async fn rollout_supersede_on_conn(conn: &mut PgConnection, stack: &LockedStack) -> Result<()> {
    sqlx::query(
        "UPDATE rollouts SET state = 'superseded', ended_at = now(), revision = revision + 1
         WHERE project = $1 AND stack_id = $2 AND ended_at IS NULL",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .run(conn, "supersede the rollout")
    .await
}

/// Aborts every rollout that has not ended, and notifies the replicas. After a restore, reports of agents that had begun a version
/// are lost, so that none of these rollouts could go on.
pub async fn rollouts_abort_all_on_conn(conn: &mut PgConnection, reason: &StopReason) -> Result<()> {
    sqlx::query(
        "WITH aborted AS (
            UPDATE rollouts SET state = 'aborted', stop_reason = $1, revision = revision + 1, ended_at = now(),
                                state_changed_at = now()
            WHERE ended_at IS NULL RETURNING project, stack_id)
         INSERT INTO outbox (project, kind, key) SELECT project, 'stack', stack_id FROM aborted",
    )
    .bind(Json(reason))
    .run(conn, "abort the rollouts")
    .await
}

macro_rules! rollout_under_way {
    ($lock:literal) => {
        concat!(
            "SELECT project, stack_id, sequence_id, widens, policy, state, stop_reason, wave, clauses, soaked, accepted_bad, accepted_excused, gate,
                    revision, figures, looked_at, watched_since, created_at, clock_timestamp() AS now, xid::text AS xid
             FROM rollouts WHERE project = $1 AND stack_id = $2 AND ended_at IS NULL",
            $lock
        )
    };
}

/// Returns the stack's rollout that is under way, without a lock.
pub async fn rollout_under_way_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: StackId,
) -> Result<Option<ActiveRollout>> {
    sqlx::query(rollout_under_way!(""))
        .bind(project)
        .bind(stack.0)
        .try_map(read_rollout)
        .optional(conn, "read the rollout")
        .await
}

/// Locks the row of the stack's rollout that is under way. The caller has locked the stack.
pub async fn rollout_lock_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
) -> Result<Option<ActiveRollout>> {
    sqlx::query(rollout_under_way!(" FOR UPDATE"))
        .bind(&stack.project)
        .bind(stack.id.0)
        .try_map(read_rollout)
        .optional(conn, "lock the rollout")
        .await
}

/// Returns to which agents the last version of the stack was released, if not every agent gets it.
pub async fn rollout_clauses_on_conn(conn: &mut PgConnection, stack: &LockedStack) -> Result<Vec<Clause>> {
    let clauses: Option<Json<Vec<Clause>>> = sqlx::query_scalar(
        "SELECT clauses FROM rollouts WHERE project = $1 AND stack_id = $2 AND sequence_id = $3",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(stack.staged.map(|staged| staged.0))
    .optional(conn, "read to which agents the version was released")
    .await?;
    Ok(clauses.map(|clauses| clauses.0).unwrap_or_default())
}

fn read_rollout(row: PgRow) -> Result<ActiveRollout, sqlx::Error> {
    Ok(ActiveRollout {
        project: row.field("project")?,
        stack: StackId(row.field("stack_id")?),
        sequence_id: SequenceId(row.field("sequence_id")?),
        widens: row.field::<Option<i64>>("widens")?.map(SequenceId),
        revision: row.field("revision")?,
        rollout: read_decided(&row)?,
        figures: row.json("figures")?,
        looked_at: row.time_opt("looked_at")?,
        watched_since: row.time("watched_since")?,
        created_at: row.time("created_at")?,
        now: row.time("now")?,
        begun_by: known(&row.field::<String>("xid")?)?,
    })
}

/// Reads what decisions depend on: the columns that the rollouts of stacks and of agents have in common.
pub(super) fn read_decided(row: &PgRow) -> Result<Rollout, sqlx::Error> {
    Ok(Rollout {
        policy: row.json("policy")?,
        state: row.known("state")?,
        stop_reason: row.field::<Option<Json<StopReason>>>("stop_reason")?.map(|reason| reason.0),
        wave: usize::try_from(row.field::<i32>("wave")?).unwrap_or_default(),
        clauses: row.json::<Vec<Clause>>("clauses")?,
        soaked: duration(&row.field("soaked")?),
        accepted_bad: row.field::<i64>("accepted_bad")?.cast_unsigned(),
        accepted_excused: row.field::<i64>("accepted_excused")?.cast_unsigned(),
        gate: row.json("gate")?,
    })
}

fn duration(interval: &PgInterval) -> Duration {
    Duration::from_micros(u64::try_from(interval.microseconds).unwrap_or_default())
}

pub(super) fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}

macro_rules! rollouts_where {
    ($where:literal) => {
        concat!(
            "SELECT r.project, r.stack_id, s.name AS stack_name, r.sequence_id, r.widens, r.base_sequence_id, r.state, r.stop_reason,
                    r.wave, r.policy, r.figures, r.pending, r.soaked, r.created_by, r.created_at, r.ended_at,
                    r.accepted_bad, o.is_deletion_marker
             FROM rollouts r JOIN stacks s ON s.project = r.project AND s.id = r.stack_id
             JOIN deployment_objects o
               ON o.project = r.project AND o.stack_id = r.stack_id AND o.sequence_id = r.object_sequence_id
             WHERE r.project = $1 AND ",
            $where
        )
    };
}

fn read_shown(row: PgRow) -> Result<Shown, sqlx::Error> {
    let accepted_bad = row.field::<i64>("accepted_bad")?.cast_unsigned();
    let rollout = Rollout { accepted_bad, ..Rollout::new(row.json("policy")?) };
    let (policy, figures): (_, RolloutFigures) = (&rollout.policy, row.json("figures")?);
    let soaked: Duration = duration(&row.field("soaked")?);
    Ok(Shown {
        project: row.field("project")?,
        stack_id: StackId(row.field("stack_id")?),
        stack_name: row.field("stack_name")?,
        sequence_id: SequenceId(row.field("sequence_id")?),
        widens: row.field::<Option<i64>>("widens")?.map(SequenceId),
        is_deletion: row.field("is_deletion_marker")?,
        base_sequence_id: row.field::<Option<i64>>("base_sequence_id")?.map(SequenceId),
        state: row.known("state")?,
        stop_reason: row.field::<Option<Json<StopReason>>>("stop_reason")?.map(|reason| reason.0),
        wave: u32::try_from(row.field::<i32>("wave")?).unwrap_or_default() + 1,
        waves: u32::try_from(policy.waves.len()).unwrap_or(u32::MAX),
        soaked_seconds: u32::try_from(soaked.as_secs()).unwrap_or(u32::MAX),
        policy: policy.shown(figures.members),
        allowed_bad: rollout.allowed_bad(figures.released),
        in_flight_limit: rollout.in_flight_limit(&figures),
        figures,
        pending: row.field::<Option<Json<Pending>>>("pending")?.map(|pending| pending.0),
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        ended_at: row.time_opt("ended_at")?,
    })
}

/// Returns the rollout with this sequence id.
pub async fn rollout_fetch(
    executor: impl PgExecutor<'_>,
    project: &str,
    sequence_id: SequenceId,
) -> Result<Option<Shown>> {
    sqlx::query(rollouts_where!("r.sequence_id = $2"))
        .bind(project)
        .bind(sequence_id.0)
        .try_map(read_shown)
        .optional(executor, "read the rollout")
        .await
}

/// Returns the rollouts with these sequence ids.
pub async fn rollouts_fetch(pool: &PgPool, project: &str, ids: &[SequenceId]) -> Result<Vec<Shown>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(rollouts_where!("r.sequence_id = ANY($2)"))
        .bind(project)
        .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
        .try_map(read_shown)
        .all(pool, "read the rollouts")
        .await
}

/// Returns up to `limit` rollouts, newest first, plus one if there are more. A widening that was never open only holds agents back:
/// it is not listed.
pub async fn rollout_list(
    pool: &PgPool,
    project: &str,
    stack: Option<StackId>,
    active: bool,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<Shown>> {
    sqlx::query(rollouts_where!(
        "($2::uuid IS NULL OR r.stack_id = $2) AND (NOT $3 OR r.ended_at IS NULL)
           AND ($4::bigint IS NULL OR r.sequence_id < $4) AND r.ended_at IS DISTINCT FROM r.created_at
         ORDER BY r.sequence_id DESC LIMIT $5"
    ))
    .bind(project)
    .bind(stack.map(|stack| stack.0))
    .bind(active)
    .bind(below.map(|below| below.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_shown)
    .all(pool, "list the rollouts")
    .await
}

/// Stores where the rollout stands now, and raises the revision if that concerns the replicas: then they have to be notified.
/// Returns whether it does.
pub async fn rollout_store_on_conn(
    conn: &mut PgConnection,
    locked: &ActiveRollout,
    after: &Rollout,
    look: &RolloutUpdate,
) -> Result<bool> {
    let concerns_replicas = after.state != locked.rollout.state || after.clauses != locked.rollout.clauses;
    sqlx::query(
        "UPDATE rollouts SET state = $4, stop_reason = $5, wave = $6, clauses = $7, soaked = $8, accepted_bad = $9,
                             figures = $10, looked_at = $11, revision = revision + $12::int,
                             ended_at = CASE WHEN $13 THEN now() END, pending = $14, watched_since = $15, accepted_excused = $16, gate = $17,
                             state_changed_at = CASE WHEN state = $4 THEN state_changed_at ELSE now() END
         WHERE project = $1 AND stack_id = $2 AND sequence_id = $3",
    )
    .bind(&locked.project)
    .bind(locked.stack.0)
    .bind(locked.sequence_id.0)
    .bind(after.state.to_string())
    .bind(after.stop_reason.as_ref().map(Json))
    .bind(i32::try_from(after.wave).unwrap_or(i32::MAX))
    .bind(Json(&after.clauses))
    .bind(interval(after.soaked))
    .bind(after.accepted_bad.cast_signed())
    .bind(Json(look.figures))
    .bind(look.at.to_sqlx())
    .bind(concerns_replicas)
    .bind(after.state.has_ended())
    .bind(look.pending.map(Json))
    .bind(look.watched_since.to_sqlx())
    .bind(after.accepted_excused.cast_signed())
    .bind(Json(&after.gate))
    .run(&mut *conn, "store the rollout")
    .await?;
    let is_raised = |clause: &&Clause| !locked.rollout.clauses.contains(clause);
    for clause in after.clauses.iter().filter(is_raised) {
        raise_insert_on_conn(conn, locked, clause).await?;
    }
    Ok(concerns_replicas)
}

async fn raise_insert_on_conn(
    conn: &mut PgConnection,
    rollout: &ActiveRollout,
    clause: &Clause,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO rollout_raises (project, stack_id, sequence_id, number, selector, upto, at, lane_begun, lane_now)
         SELECT $1, $2, $3, count(*), $4, $5::numeric, $6, $7, $8 FROM rollout_raises
         WHERE project = $1 AND stack_id = $2 AND sequence_id = $3",
    )
    .bind(&rollout.project)
    .bind(rollout.stack.0)
    .bind(rollout.sequence_id.0)
    .bind(clause.selector.as_ref().map(ToString::to_string))
    .bind(clause.upto.to_string())
    .bind(rollout.now.to_sqlx())
    .bind(clause.lanes.begun.map(|lane| lane.0.cast_signed()))
    .bind(clause.lanes.now.map(|lane| lane.0.cast_signed()))
    .run(conn, "store a step of the rollout")
    .await
}

/// Makes the version of a completed rollout the one that every agent gets. Returns whether that deletes the stack.
pub async fn rollout_complete_on_conn(conn: &mut PgConnection, rollout: &ActiveRollout) -> Result<bool> {
    if rollout.widens.is_some() {
        widening_forget_on_conn(conn, &rollout.project, rollout.stack).await?;
        return Ok(false);
    }
    sqlx::query_scalar(
        "UPDATE stacks s SET newest_sequence_id = o.sequence_id, staged_sequence_id = NULL, widening_sequence_id = NULL,
                             deleted_at = CASE WHEN o.is_deletion_marker THEN now() ELSE s.deleted_at END
         FROM deployment_objects o
         WHERE s.project = $1 AND s.id = $2 AND o.project = $1 AND o.stack_id = $2 AND o.sequence_id = $3
         RETURNING o.is_deletion_marker",
    )
    .bind(&rollout.project)
    .bind(rollout.stack.0)
    .bind(rollout.sequence_id.0)
    .one(conn, "complete the rollout")
    .await
}

async fn raises_on_conn(conn: &mut PgConnection, rollout: &ActiveRollout) -> Result<Raises> {
    let rows = sqlx::query(
        "SELECT selector, lane_begun, lane_now, upto::text AS upto, at FROM rollout_raises
         WHERE project = $1 AND stack_id = $2 AND sequence_id = $3 ORDER BY number",
    )
    .bind(&rollout.project)
    .bind(rollout.stack.0)
    .bind(rollout.sequence_id.0)
    .try_map(read_raise);
    Ok(raises(rows.all(conn, "read the steps of the rollout").await?))
}

/// Reads a raise of a mark, and when it happened.
pub(super) fn read_raise(row: PgRow) -> Result<(Clause, Timestamp), sqlx::Error> {
    let selector: Option<String> = row.field("selector")?;
    let selector = selector.map(|selector| known::<Selector>(&selector)).transpose()?;
    let lane = |column| {
        let lane: Option<i64> = row.field(column)?;
        Ok::<_, sqlx::Error>(lane.map(|lane| Lane(lane.cast_unsigned())))
    };
    let lanes = Lanes { begun: lane("lane_begun")?, now: lane("lane_now")? };
    Ok((Clause { selector, lanes, upto: known(&row.field::<String>("upto")?)? }, row.time("at")?))
}

/// Returns the raises of the marks of a rollout, which are in the order in which they happened.
pub(super) fn raises(rows: Vec<(Clause, Timestamp)>) -> Raises {
    let mut raises = Raises::default();
    rows.into_iter().for_each(|(clause, at)| raises.push(clause, at));
    raises
}

/// Returns the last reports about exactly this version. In a widening, an agent may have begun a newer one, which was aborted since.
async fn reports_on_conn(
    conn: &mut PgConnection,
    rollout: &ActiveRollout,
) -> Result<HashMap<AgentId, VersionReport>> {
    let reports = sqlx::query(
        "SELECT agent_id, transition, since, bad_before, transition = 'blocked' AND reason = $4 AS awaits_approval,
                transition = 'blocked' AND reason = 'WaitingForWave' AS waits_for_wave
         FROM stack_status WHERE project = $1 AND stack_id = $2 AND (sequence_id = $3 OR $5 AND sequence_id > $3)",
    )
    .bind(&rollout.project)
    .bind(rollout.stack.0)
    .bind(rollout.version().0)
    .bind(NEEDS_APPROVAL)
    .bind(rollout.widens.is_some())
    .try_map(|row| {
        let report = VersionReport {
            transition: row.known::<Transition>("transition")?,
            since: row.time("since")?,
            bad_before: row.field("bad_before")?,
            awaits_approval: row.field("awaits_approval")?,
            waits_for_wave: row.field("waits_for_wave")?,
        };
        Ok((AgentId(row.field("agent_id")?), report))
    });
    Ok(reports.all(conn, "read the reports about the rollout").await?.into_iter().collect())
}

/// Returns which agents are connected. Reads every agent: once for all rollouts.
pub async fn rollout_contacts_on_conn(conn: &mut PgConnection) -> Result<Contacts> {
    type Time = jiff_sqlx::Timestamp;
    let absent: Vec<(Uuid, Option<Time>, bool)> = sqlx::query_as(
        "SELECT id, last_seen_at + make_interval(secs => poll_seconds), last_seen_at IS NULL OR silent_since IS NOT NULL
         FROM agents WHERE last_seen_at IS NULL OR silent_since IS NOT NULL
                        OR last_seen_at < clock_timestamp() - make_interval(secs => poll_seconds * $1)",
    )
    .bind(f64::from(LATE_AFTER))
    .all(&mut *conn, "read the silent agents")
    .await?;
    let contact = |missed: Option<Time>, is_silent: bool| match missed.map(Time::to_jiff) {
        Some(missed) if !is_silent => Contact::Late(missed),
        missed => Contact::Silent(missed),
    };
    // An agent that returned earlier has had enough time for a verdict.
    let returned: Vec<(Uuid, Time)> = sqlx::query_as(
        "SELECT agent_id, max(at) FROM agent_events WHERE kind = 'back' AND at > now() - interval '1 hour' GROUP BY 1",
    )
    .all(conn, "read the agents that returned")
    .await?;
    Ok(Contacts {
        absent: absent.into_iter().map(|(id, at, silent)| (AgentId(id), contact(at, silent))).collect(),
        returned: returned.into_iter().map(|(id, at)| (AgentId(id), at.to_jiff())).collect(),
    })
}

/// Returns what the database knows about the agents of a rollout.
pub async fn rollout_evidence_on_conn<'a>(
    conn: &mut PgConnection,
    rollout: &ActiveRollout,
    contacts: &'a Contacts,
) -> Result<Evidence<'a>> {
    Ok(Evidence {
        raises: raises_on_conn(conn, rollout).await?,
        reports: reports_on_conn(conn, rollout).await?,
        contacts,
        watched_since: rollout.watched().1,
    })
}

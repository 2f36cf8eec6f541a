//! Events: the reports of agents, each once.

use std::collections::HashSet;

use brokkr_api::events::Event;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::Transition;
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::filing::Filed;

/// Makes reports of one agent wait for each other, on all replicas: two batches about the same stacks must
/// not deadlock. No statement of the transaction waits long for a lock: the session of a replica that no longer responds
/// may hold one until it times out.
pub async fn event_lock_agent_on_conn(conn: &mut PgConnection, agent: AgentId) -> Result<()> {
    sqlx::query("SET LOCAL lock_timeout = '500ms'")
        .run(&mut *conn, "limit the wait for other reports of the agent")
        .await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 1))")
        .bind(agent.0)
        .run(conn, "wait for other reports of the agent")
        .await
}

/// Takes the same lock for each of these agents, but waits for none. Returns the agents of which another transaction is
/// storing reports now.
pub async fn event_try_lock_agents_on_conn(
    conn: &mut PgConnection,
    agents: &[AgentId],
) -> Result<HashSet<AgentId>> {
    let busy: Vec<Uuid> = sqlx::query_scalar(
        "SELECT agent_id FROM unnest($1::uuid[]) AS agent_id
         WHERE NOT pg_try_advisory_xact_lock(hashtextextended(agent_id::text, 1))",
    )
    .bind(agents.iter().map(|agent| agent.0).collect::<Vec<_>>())
    .all(conn, "lock the reports of the agents")
    .await?;
    Ok(busy.into_iter().map(AgentId).collect())
}

/// Inserts reports in one statement and returns which events are new. A repeated event conflicts with its
/// first copy, because the agent chooses its id and time, and both are the same again. (Where the time was replaced, see
/// [`event_find_on_conn`].)
pub async fn event_insert_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<HashSet<EventId>> {
    let reports = || filed.iter().map(|filed| &filed.report);
    let new: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, details, message,
                             objects, hops)
         SELECT r.project, r.id, r.at, r.stack_id, r.agent_id, r.sequence_id, r.transition, r.reason, r.details,
                r.message, r.objects, r.hops
         FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::uuid[], $6::bigint[], $7::text[],
                     $8::text[], $9::jsonb[], $10::text[], $11::jsonb[], $12::jsonb[])
              AS r (project, agent_id, id, at, stack_id, sequence_id, transition, reason, details, message, objects, hops)
         WHERE NOT EXISTS (SELECT FROM clamped_reports c WHERE c.project = r.project AND c.id = r.id)
         ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(filed.iter().map(|filed| filed.project.as_str()).collect::<Vec<_>>())
    .bind(filed.iter().map(|filed| filed.agent.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.at.to_sqlx()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.stack_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.sequence_id.0).collect::<Vec<_>>())
    .bind(reports().map(|report| report.transition.to_string()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.reason.code()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.reason.details()).collect::<Vec<_>>())
    .bind(reports().map(|report| report.message.to_string()).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(&report.objects)).collect::<Vec<_>>())
    .bind(reports().map(|report| Json(report.hops)).collect::<Vec<_>>())
    .all(conn, "insert the events")
    .await?;
    Ok(new.into_iter().map(EventId).collect())
}

/// Returns which of these events are stored already, whatever their times.
pub async fn event_find_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<HashSet<EventId>> {
    let known: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM events WHERE project = ANY($1) AND id = ANY($2)")
            .bind(filed.iter().map(|filed| filed.project.as_str()).collect::<Vec<_>>())
            .bind(filed.iter().map(|filed| filed.report.id.0).collect::<Vec<_>>())
            .all(conn, "find events that are stored already")
            .await?;
    Ok(known.into_iter().map(EventId).collect())
}

/// Remembers events that were stored with another time than their own: a copy may not conflict with them.
pub async fn event_remember_clamped_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<()> {
    sqlx::query(
        "INSERT INTO clamped_reports (project, id) SELECT * FROM unnest($1::text[], $2::uuid[]) ON CONFLICT DO NOTHING",
    )
    .bind(filed.iter().map(|filed| filed.project.as_str()).collect::<Vec<_>>())
    .bind(filed.iter().map(|filed| filed.report.id.0).collect::<Vec<_>>())
    .run(conn, "remember events with a replaced time")
    .await
}

/// The position of an event: its transaction, and its number. Transactions do not end in the order in which
/// they began. So a reader reads in the order of positions, and only up to the horizon (the lowest
/// transaction that is still open): then it skips nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor {
    pub xid: u64,
    pub recorded: i64,
}

impl EventCursor {
    /// Returns the position before every event of this transaction.
    #[must_use]
    pub fn before(xid: u64) -> Self {
        Self { xid, recorded: 0 }
    }
}

impl std::fmt::Display for EventCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.xid, self.recorded)
    }
}

impl std::str::FromStr for EventCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (xid, recorded) = text.split_once('.').unwrap_or((text, ""));
        // Both have to fit into a non-negative bigint: a forged cursor is refused here.
        let unsigned = |text: &str| if text.starts_with('-') { "".parse() } else { text.parse::<i64>() };
        Ok(Self { xid: unsigned(xid)?.cast_unsigned(), recorded: unsigned(recorded)? })
    }
}

/// Selects events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub stack: Option<StackId>,
    pub agent: Option<AgentId>,
    pub sequence_id: Option<SequenceId>,
    pub transition: Option<Transition>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only events below this position.
    pub below: Option<EventCursor>,
}

/// An event and its position.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    pub place: EventCursor,
    pub event: Event,
}

fn read_event(row: PgRow) -> Result<RecordedEvent, sqlx::Error> {
    let event = Event {
        id: EventId(row.field("id")?),
        project: row.field("project")?,
        stack_id: StackId(row.field("stack_id")?),
        stack_name: row.field("stack_name")?,
        agent_id: AgentId(row.field("agent_id")?),
        agent_name: row.field("agent_name")?,
        sequence_id: SequenceId(row.field("sequence_id")?),
        transition: row.known("transition")?,
        at: row.time("at")?,
        reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
        message: Message::new(row.field::<String>("message")?),
        objects: row.json("objects")?,
        hops: row.json("hops")?,
    };
    let xid = row.field::<i64>("xid")?.cast_unsigned();
    let place = EventCursor { xid, recorded: row.field("recorded")? };
    Ok(RecordedEvent { place, event })
}

macro_rules! events {
    ($($rest:tt)*) => {
        concat!(
            "SELECT e.xid::text::bigint AS xid, e.recorded, e.project, e.id, e.at, e.stack_id,
                    coalesce(s.name, '') AS stack_name, e.agent_id, coalesce(a.name, e.agent_id::text) AS agent_name, e.sequence_id,
                    e.transition, e.reason, e.details, e.message, e.objects, e.hops
             FROM events e
             LEFT JOIN stacks s ON s.project = e.project AND s.id = e.stack_id
             LEFT JOIN agents a ON a.id = e.agent_id ",
            $($rest)*
        )
    };
}

/// Filters other than position, stack and agent.
macro_rules! other_filters {
    () => {
        " AND ($7::bigint IS NULL OR e.sequence_id = $7) AND ($8::text IS NULL OR e.transition = $8)
          AND ($9::timestamptz IS NULL OR e.at >= $9) AND ($10::timestamptz IS NULL OR e.at < $10) "
    };
}

/// The order of a list: newest first. Lists by stack or agent are ordered by number alone, like their index.
macro_rules! events_below {
    ($condition:literal) => {
        events!(
            "WHERE e.project = $1 AND $2::bigint IS NOT NULL AND e.recorded < $3 AND ($4::uuid IS NULL OR e.stack_id = $4)
               AND ($5::uuid IS NULL OR e.agent_id = $5) AND ",
            $condition,
            other_filters!(),
            " ORDER BY e.recorded DESC LIMIT $6"
        )
    };
}

/// Returns up to `limit` events, newest first, plus one if there are more.
///
/// If a caller reads page by page, an event that commits meanwhile may belong to a page that was already
/// read, and is missed. The event stream contains it.
pub async fn event_list(
    pool: &PgPool,
    project: &str,
    filter: EventFilter,
    limit: usize,
) -> Result<Vec<RecordedEvent>> {
    // One statement per filter, so that each uses its index.
    let sql = match (filter.stack, filter.agent) {
        (None, None) => events!(
            "WHERE e.project = $1 AND (e.xid, e.recorded) < ($2::bigint::text::xid8, $3)
               AND $4::uuid IS NULL AND $5::uuid IS NULL ",
            other_filters!(),
            " ORDER BY e.xid DESC, e.recorded DESC LIMIT $6"
        ),
        (Some(_), None) => events_below!("e.stack_id = $4"),
        (None, Some(_)) => events_below!("e.agent_id = $5"),
        (Some(_), Some(_)) => events_below!("e.stack_id = $4 AND e.agent_id = $5"),
    };
    let below = filter.below.unwrap_or(EventCursor { xid: i64::MAX.cast_unsigned(), recorded: i64::MAX });
    sqlx::query(sql)
        .bind(project)
        .bind(below.xid.cast_signed())
        .bind(below.recorded)
        .bind(filter.stack.map(|stack| stack.0))
        .bind(filter.agent.map(|agent| agent.0))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .bind(filter.sequence_id.map(|sequence| sequence.0))
        .bind(filter.transition.map(|transition| transition.to_string()))
        .bind(filter.since.map(Timestamp::to_sqlx))
        .bind(filter.until.map(Timestamp::to_sqlx))
        .try_map(read_event)
        .all(pool, "list the events")
        .await
}

/// Returns events after a position, in transactions below the horizon, oldest first; of one project or of all.
pub async fn event_follow(
    pool: &PgPool,
    project: Option<&str>,
    after: EventCursor,
    horizon: u64,
    limit: usize,
) -> Result<Vec<RecordedEvent>> {
    let sql = match project {
        None => events!(
            "WHERE $1::text IS NULL AND (e.xid, e.recorded) > ($2::bigint::text::xid8, $3)
               AND e.xid < $4::bigint::text::xid8 ORDER BY e.xid, e.recorded LIMIT $5"
        ),
        Some(_) => events!(
            "WHERE e.project = $1 AND (e.xid, e.recorded) > ($2::bigint::text::xid8, $3)
               AND e.xid < $4::bigint::text::xid8 ORDER BY e.xid, e.recorded LIMIT $5"
        ),
    };
    sqlx::query(sql)
        .bind(project)
        .bind(after.xid.cast_signed())
        .bind(after.recorded)
        .bind(horizon.cast_signed())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .try_map(read_event)
        .all(pool, "follow the events")
        .await
}

//! Events: what agents reported, each once.

use std::collections::HashSet;

use brokkr_api::events::Event;
use brokkr_api::report::{Hops, ObjectNote, Report};
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use jiff_sqlx::ToSqlx as _;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{Doing as _, StoreError, known};

/// Inserts a batch in one statement and tells which of them are new. A repeated one meets its twin, because
/// id and time are the agent's own.
pub async fn event_insert_on_conn(
    connection: &mut PgConnection,
    project: &str,
    agent: AgentId,
    reports: &[Report],
) -> Result<HashSet<EventId>, StoreError> {
    let new: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO events (project, id, at, stack_id, agent_id, sequence_id, transition, reason, message, objects, hops)
         SELECT $1, r.id, r.at, r.stack_id, $2, r.sequence_id, r.transition, r.reason, r.message, r.objects, r.hops
         FROM unnest($3::uuid[], $4::timestamptz[], $5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[],
                     $10::jsonb[], $11::jsonb[])
              AS r (id, at, stack_id, sequence_id, transition, reason, message, objects, hops)
         ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(project)
    .bind(agent.0)
    .bind(reports.iter().map(|report| report.id.0).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.at.to_sqlx()).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.stack_id.0).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.sequence_id.0).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.transition.to_string()).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.reason.clone()).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| report.message.clone()).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| Json(&report.objects)).collect::<Vec<_>>())
    .bind(reports.iter().map(|report| Json(report.hops)).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .doing("insert the events")?;
    Ok(new.into_iter().map(EventId).collect())
}

/// Which events are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFilter {
    pub stack: Option<StackId>,
    pub agent: Option<AgentId>,
    /// Read on below this one.
    pub below: Option<i64>,
}

/// An event with its place in the list.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    pub recorded: i64,
    pub event: Event,
}

#[derive(sqlx::FromRow)]
struct EventRow {
    recorded: i64,
    project: String,
    id: Uuid,
    at: jiff_sqlx::Timestamp,
    stack_id: Uuid,
    stack_name: String,
    agent_id: Uuid,
    agent_name: String,
    sequence_id: i64,
    transition: String,
    reason: String,
    message: String,
    objects: Json<Vec<ObjectNote>>,
    hops: Json<Hops>,
}

impl EventRow {
    fn event(self) -> Result<RecordedEvent, sqlx::Error> {
        let event = Event {
            id: EventId(self.id),
            project: self.project,
            stack_id: StackId(self.stack_id),
            stack_name: self.stack_name,
            agent_id: AgentId(self.agent_id),
            agent_name: self.agent_name,
            sequence_id: SequenceId(self.sequence_id),
            transition: known(&self.transition)?,
            at: self.at.to_jiff(),
            reason: self.reason,
            message: self.message,
            objects: self.objects.0,
            hops: self.hops.0,
        };
        Ok(RecordedEvent { recorded: self.recorded, event })
    }
}

macro_rules! events_where {
    ($condition:literal) => {
        concat!(
            "SELECT e.recorded, e.project, e.id, e.at, e.stack_id, coalesce(s.name, '') AS stack_name, e.agent_id,
                    coalesce(a.name, '') AS agent_name, e.sequence_id, e.transition, e.reason, e.message,
                    e.objects, e.hops
             FROM events e
             LEFT JOIN stacks s ON s.project = e.project AND s.id = e.stack_id
             LEFT JOIN agents a ON a.id = e.agent_id
             WHERE e.project = $1 AND e.recorded < $2 AND ($3::uuid IS NULL OR e.stack_id = $3)
               AND ($4::uuid IS NULL OR e.agent_id = $4) AND ",
            $condition,
            " ORDER BY e.recorded DESC LIMIT $5"
        )
    };
}

/// A page of events, newest first, one more than `limit` if there are more.
pub async fn event_list(
    pool: &PgPool,
    project: &str,
    filter: EventFilter,
    limit: usize,
) -> Result<Vec<RecordedEvent>, StoreError> {
    // One text a filter, so that each finds its index.
    let sql = match (filter.stack, filter.agent) {
        (None, None) => events_where!("true"),
        (Some(_), None) => events_where!("e.stack_id = $3"),
        (None, Some(_)) => events_where!("e.agent_id = $4"),
        (Some(_), Some(_)) => events_where!("e.stack_id = $3 AND e.agent_id = $4"),
    };
    let rows: Vec<EventRow> = sqlx::query_as(sql)
        .bind(project)
        .bind(filter.below.unwrap_or(i64::MAX))
        .bind(filter.stack.map(|stack| stack.0))
        .bind(filter.agent.map(|agent| agent.0))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .fetch_all(pool)
        .await
        .doing("list the events")?;
    rows.into_iter().map(EventRow::event).collect::<Result<_, _>>().doing("list the events")
}

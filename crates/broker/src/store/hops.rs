//! The history of each deployment object of a stack on an agent, as the agent reported it.

use std::collections::BTreeMap;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::Hops;
use brokkr_api::why::{ReportedTransition, SequenceHops};
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::PgPool;
use sqlx::types::Json;

use super::{Doing as _, Fetch as _, Result, known};

const ACTION: &str = "read what happened on the agent";
/// The largest number of reports returned per object, oldest first: a conflict may cause thousands.
const REPORTS: i64 = 50;

#[derive(sqlx::FromRow)]
struct HopsRow {
    sequence_id: i64,
    hops: Json<Hops>,
    transition: String,
    at: jiff_sqlx::Timestamp,
    reason: String,
    details: Option<serde_json::Value>,
    message: String,
}

/// Returns up to `limit` objects that the agent reported on, newest first, plus one if there are more.
pub async fn hops_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    agent: AgentId,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<SequenceHops>> {
    let rows: Vec<HopsRow> = sqlx::query_as(
        "WITH reported AS (SELECT * FROM events WHERE project = $1 AND agent_id = $2 AND stack_id = $3 AND sequence_id < $4),
              objects AS (SELECT DISTINCT sequence_id FROM reported ORDER BY sequence_id DESC LIMIT $5),
              numbered AS (SELECT reported.*, row_number() OVER (PARTITION BY sequence_id ORDER BY at, recorded) AS number
                           FROM reported JOIN objects USING (sequence_id))
         SELECT sequence_id, hops, transition, at, reason, details, message FROM numbered WHERE number <= $6
         ORDER BY sequence_id, number",
    )
    .bind(project)
    .bind(agent.0)
    .bind(stack.0)
    .bind(below.map_or(i64::MAX, |sequence| sequence.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .bind(REPORTS)
    .all(pool, ACTION)
    .await?;
    let mut objects: BTreeMap<i64, SequenceHops> = BTreeMap::new();
    for row in rows {
        let sequence_id = SequenceId(row.sequence_id);
        let object = objects.entry(row.sequence_id).or_insert_with(|| SequenceHops {
            sequence_id,
            hops: Hops::default(),
            reports: Vec::new(),
        });
        object.hops = object.hops.with(&row.hops.0);
        object.reports.push(ReportedTransition {
            transition: known(&row.transition).doing(ACTION)?,
            at: row.at.to_jiff(),
            reason: Reason::from_parts(&row.reason, row.details),
            message: Message::new(row.message),
        });
    }
    Ok(objects.into_values().rev().collect())
}

//! The history of each deployment object of a stack on an agent, as the agent reported it.

use std::collections::BTreeMap;

use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::Hops;
use brokkr_api::why::{ReportedTransition, SequenceHops};
use brokkr_api::{AgentId, SequenceId, StackId};
use sqlx::PgPool;

use super::{Columns as _, Fetch as _, Result};

/// At most this many reports are returned per object, the oldest ones: a conflict may cause thousands.
const REPORTS: i64 = 50;

/// Returns up to `limit` objects that the agent reported on, newest first, plus one if there are more.
pub async fn hops_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    agent: AgentId,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<SequenceHops>> {
    let rows: Vec<(i64, Hops, ReportedTransition)> = sqlx::query(
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
    .try_map(|row| {
        let report = ReportedTransition {
            transition: row.known("transition")?,
            at: row.time("at")?,
            reason: Reason::from_parts(row.field("reason")?, row.field("details")?),
            message: Message::new(row.field::<String>("message")?),
        };
        Ok((row.field("sequence_id")?, row.json("hops")?, report))
    })
    .all(pool, "read what happened on the agent")
    .await?;
    let mut objects: BTreeMap<i64, SequenceHops> = BTreeMap::new();
    for (sequence_id, hops, report) in rows {
        let object = objects.entry(sequence_id).or_insert_with(|| SequenceHops {
            sequence_id: SequenceId(sequence_id),
            hops: Hops::default(),
            reports: Vec::new(),
        });
        object.hops = object.hops.with(&hops);
        object.reports.push(report);
    }
    Ok(objects.into_values().rev().collect())
}

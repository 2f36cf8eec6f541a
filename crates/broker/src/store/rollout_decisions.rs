//! The steps of rollouts, which a trigger records.

use brokkr_api::SequenceId;
use brokkr_api::rollouts::RolloutDecision;
use sqlx::PgPool;
use sqlx::types::Json;

use super::{Columns as _, Fetch as _, Result};

/// Returns up to `limit` decisions of a rollout before this number, newest first, plus one if there are more.
pub async fn rollout_decision_list(
    pool: &PgPool,
    project: &str,
    rollout: SequenceId,
    below: Option<u32>,
    limit: usize,
) -> Result<Vec<RolloutDecision>> {
    sqlx::query(
        "SELECT d.number, d.at, d.state, d.wave, d.figures, d.pending, d.stop_reason
         FROM rollouts r JOIN rollout_decisions d USING (project, stack_id, sequence_id)
         WHERE r.project = $1 AND r.sequence_id = $2 AND ($3::int IS NULL OR d.number < $3)
         ORDER BY d.number DESC LIMIT $4",
    )
    .bind(project)
    .bind(rollout.0)
    .bind(below.map(|below| i32::try_from(below).unwrap_or(i32::MAX)))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(|row| {
        let wave: i32 = row.field("wave")?;
        Ok(RolloutDecision {
            number: row.field::<i32>("number")?.cast_unsigned(),
            at: row.time("at")?,
            state: row.known("state")?,
            wave: wave.cast_unsigned() + 1,
            figures: row.field::<Json<_>>("figures")?.0,
            pending: row.field::<Option<Json<_>>>("pending")?.map(|pending| pending.0),
            stop_reason: row.field::<Option<Json<_>>>("stop_reason")?.map(|reason| reason.0),
        })
    })
    .all(pool, "list the decisions of the rollout")
    .await
}

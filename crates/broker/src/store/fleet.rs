//! Figures about the fleet, for metrics: one statement, which reads maintained counts where they exist.

use std::collections::BTreeMap;

use sqlx::PgPool;

use super::{Fetch as _, Result};
use crate::domain::presence::{LATE_AFTER, SILENT_AFTER};

/// The reason of a stack that waits for the approval of a prune.
pub(super) const NEEDS_APPROVAL: &str = "PruneNeedsApproval";

/// One figure: its subject and up to two labels.
pub type Figure = (String, String, String);

/// Figures by subject: `agents`, `placements`, `behind`, `approvals`, `rollouts`, `webhooks`, `messages`. A figure of zero is
/// absent.
#[derive(Clone, Debug, Default)]
pub struct FleetFigures(BTreeMap<Figure, f64>);

impl FleetFigures {
    /// Returns the figure, or zero.
    #[must_use]
    pub fn of(&self, what: &str, one: &str, two: &str) -> f64 {
        let figure = (what.to_owned(), one.to_owned(), two.to_owned());
        self.0.get(&figure).copied().unwrap_or_default()
    }
}

pub async fn fleet_count(pool: &PgPool) -> Result<FleetFigures> {
    let rows: Vec<(String, String, String, f64)> = sqlx::query_as(
        "WITH undelivered AS (
            SELECT c.project, c.stack_id, s.newest_sequence_id, sum(c.count) AS agents
            FROM status_counts c JOIN stacks s ON s.project = c.project AND s.id = c.stack_id
            WHERE c.sequence_id < s.newest_sequence_id AND c.transition <> 'removed'
            GROUP BY 1, 2, 3 HAVING sum(c.count) > 0),
         waiting AS (
            SELECT t.at FROM reasons r JOIN stack_status t ON t.project = r.project AND t.reason_key = r.key
            WHERE r.reason = $3 AND t.transition = 'blocked'),
         active AS (
            SELECT r.*, now() - first_value(r.created_at) OVER (
                       PARTITION BY r.project, r.stack_id, r.widens ORDER BY r.sequence_id) AS age
            FROM rollouts r JOIN stacks s ON s.project = r.project AND s.id = r.stack_id
            WHERE s.staged_sequence_id IS NOT NULL AND r.sequence_id > coalesce(s.newest_sequence_id, 0) AND r.widens IS NULL
               OR r.sequence_id = s.widening_sequence_id),
         messages AS (
            SELECT project, webhook_id, created_at, last_attempt_at FROM webhook_deliveries WHERE state = 'pending')
         SELECT 'agents', status, presence, count(*)::float8 FROM (
            SELECT status, CASE WHEN last_seen_at IS NULL THEN 'never' WHEN missed < $1 THEN 'fresh'
                                WHEN missed < $2 THEN 'late' ELSE 'silent' END AS presence
            FROM (SELECT status, last_seen_at,
                         floor(extract(epoch FROM now() - last_seen_at) / greatest(poll_seconds, 1)) AS missed
                  FROM agents) asked) agents GROUP BY status, presence
         UNION ALL SELECT 'placements', transition, '', sum(count)::float8 FROM status_counts GROUP BY transition
         UNION ALL SELECT 'behind', 'count', '', coalesce(sum(agents), 0)::float8 FROM undelivered
         UNION ALL SELECT 'behind', 'oldest', '', coalesce(extract(epoch FROM now() - min(d.created_at)), 0)::float8
            FROM undelivered u JOIN deployment_objects d
            ON d.project = u.project AND d.stack_id = u.stack_id AND d.sequence_id = u.newest_sequence_id
         UNION ALL SELECT 'approvals', 'count', '', count(*)::float8 FROM waiting
         UNION ALL SELECT 'approvals', 'oldest', '', coalesce(extract(epoch FROM now() - min(at)), 0)::float8 FROM waiting
         UNION ALL SELECT 'rollouts', state, '', count(*)::float8 FROM active WHERE ended_at IS NULL GROUP BY state
         UNION ALL SELECT 'rollouts', state, 'oldest', extract(epoch FROM now() - min(state_changed_at))::float8
            FROM active WHERE ended_at IS NULL GROUP BY state
         UNION ALL SELECT 'rollout_agents', class, '', coalesce(sum((figures ->> class)::float8), 0)
            FROM active, unnest(ARRAY['bad', 'owed', 'in_flight']) AS class WHERE ended_at IS NULL GROUP BY class
         UNION ALL SELECT 'base', 'oldest', '', coalesce(extract(epoch FROM max(age)), 0)::float8 FROM active
            WHERE ended_at IS NULL AND widens IS NULL
         UNION ALL SELECT 'look', 'oldest', '', coalesce(extract(epoch FROM now() - min(coalesce(looked_at, created_at))), 0)::float8
            FROM active WHERE is_open
         UNION ALL SELECT 'webhooks', CASE WHEN failing THEN 'failing' WHEN enabled THEN 'working' ELSE 'off' END, '',
                          count(*)::float8
            FROM (SELECT w.enabled, w.enabled AND EXISTS (
                     SELECT FROM messages m WHERE m.project = w.project AND m.webhook_id = w.id
                                              AND m.last_attempt_at IS NOT NULL) AS failing FROM webhooks w) webhooks
            GROUP BY 2
         UNION ALL SELECT 'messages', 'count', '', count(*)::float8 FROM messages
         UNION ALL SELECT 'messages', 'oldest', '', coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
            FROM messages",
    )
    .bind(f64::from(LATE_AFTER))
    .bind(f64::from(SILENT_AFTER))
    .bind(NEEDS_APPROVAL)
    .all(pool, "count the fleet")
    .await?;
    Ok(FleetFigures(rows.into_iter().map(|(what, one, two, value)| ((what, one, two), value)).collect()))
}

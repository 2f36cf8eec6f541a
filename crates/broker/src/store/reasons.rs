//! Groups of errors: status and counts contain only the digest of a reason; this table has the reason itself.

use sqlx::PgConnection;

use super::{Result, Run as _};
use crate::domain::filing::Filed;

/// Stores the error groups of these reports. The time of an old group is renewed, so that it is not
/// deleted as unused before the report is counted.
pub async fn reason_insert_on_conn(conn: &mut PgConnection, filed: &[&Filed]) -> Result<()> {
    let groups: Vec<_> =
        filed.iter().filter_map(|filed| Some((filed.project.as_str(), filed.group.as_ref()?))).collect();
    if groups.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO reasons (project, key, reason, details)
         SELECT DISTINCT ON (r.project, r.key) r.project, r.key, r.reason, r.details
         FROM unnest($1::text[], $2::bytea[], $3::text[], $4::jsonb[]) AS r (project, key, reason, details)
         ORDER BY r.project, r.key
         ON CONFLICT (project, key) DO UPDATE SET created_at = now()
            WHERE reasons.created_at < now() - interval '12 hours'",
    )
    .bind(groups.iter().map(|(project, _)| *project).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, group)| group.key.as_slice()).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, group)| group.reason.code()).collect::<Vec<_>>())
    .bind(groups.iter().map(|(_, group)| group.reason.details()).collect::<Vec<_>>())
    .run(conn, "store the reasons")
    .await
}

//! Contents that are refused on a stack since a rollback.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::BarredContent;
use brokkr_api::{SequenceId, StackId};
use sqlx::{PgConnection, PgPool};

use super::stacks::LockedStack;
use super::{Fetch as _, Result, Run as _, checksum};

#[derive(sqlx::FromRow)]
struct BarredRow {
    checksum: Vec<u8>,
    sequence_id: i64,
    barred_by: String,
    reason: String,
    created_at: jiff_sqlx::Timestamp,
}

impl From<BarredRow> for BarredContent {
    fn from(row: BarredRow) -> Self {
        Self {
            checksum: checksum(&row.checksum),
            sequence_id: SequenceId(row.sequence_id),
            barred_by: row.barred_by,
            reason: row.reason,
            created_at: row.created_at.to_jiff(),
        }
    }
}

/// Bars a content. The caller holds the lock of the stack's row, so that no submission can come in between.
pub async fn barred_content_insert_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    content: Checksum,
    sequence_id: SequenceId,
    barred_by: &str,
    reason: &str,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO barred_contents (project, stack_id, checksum, sequence_id, barred_by, reason)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&content.0[..])
    .bind(sequence_id.0)
    .bind(barred_by)
    .bind(reason)
    .run(conn, "bar the content")
    .await
}

/// Returns the bar on this content, if any.
pub async fn barred_content_find_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    content: Checksum,
) -> Result<Option<BarredContent>> {
    let row: Option<BarredRow> = sqlx::query_as(
        "SELECT checksum, sequence_id, barred_by, reason, created_at FROM barred_contents
         WHERE project = $1 AND stack_id = $2 AND checksum = $3",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&content.0[..])
    .optional(conn, "find the bar on the content")
    .await?;
    Ok(row.map(Into::into))
}

pub async fn barred_content_delete_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    content: Checksum,
) -> Result<bool> {
    sqlx::query("DELETE FROM barred_contents WHERE project = $1 AND stack_id = $2 AND checksum = $3")
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(&content.0[..])
        .affected(conn, "remove the bar")
        .await
        .map(|rows| rows > 0)
}

/// Returns up to `limit` barred contents of a stack, newest version first, plus one if there are more.
pub async fn barred_content_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<BarredContent>> {
    let rows: Vec<BarredRow> = sqlx::query_as(
        "SELECT checksum, sequence_id, barred_by, reason, created_at FROM barred_contents
         WHERE project = $1 AND stack_id = $2 AND sequence_id < $3 ORDER BY sequence_id DESC LIMIT $4",
    )
    .bind(project)
    .bind(stack.0)
    .bind(below.map_or(i64::MAX, |sequence| sequence.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .all(pool, "list barred contents")
    .await?;
    Ok(rows.into_iter().map(Into::into).collect())
}

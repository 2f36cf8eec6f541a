//! Barred content: a rollback bars the content that it rolls back, and the stack refuses that content until
//! the bar is removed.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::BarredContent;
use brokkr_api::{SequenceId, StackId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool};

use super::stacks::LockedStack;
use super::{Columns as _, Fetch as _, Result, Run as _, checksum};

fn read_barred_content(row: PgRow) -> Result<BarredContent, sqlx::Error> {
    Ok(BarredContent {
        checksum: checksum(row.field("checksum")?),
        sequence_id: SequenceId(row.field("sequence_id")?),
        barred_by: row.field("barred_by")?,
        reason: row.field("reason")?,
        created_at: row.time("created_at")?,
    })
}

/// Bars the content. The caller holds the lock of the stack's row, so that no submission can come in between.
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
    sqlx::query(
        "SELECT checksum, sequence_id, barred_by, reason, created_at FROM barred_contents
         WHERE project = $1 AND stack_id = $2 AND checksum = $3",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&content.0[..])
    .try_map(read_barred_content)
    .optional(conn, "find the bar on the content")
    .await
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

/// Returns up to `limit` entries of barred content of a stack, newest version first, plus one if there are more.
pub async fn barred_content_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<BarredContent>> {
    sqlx::query(
        "SELECT checksum, sequence_id, barred_by, reason, created_at FROM barred_contents
         WHERE project = $1 AND stack_id = $2 AND sequence_id < $3 ORDER BY sequence_id DESC LIMIT $4",
    )
    .bind(project)
    .bind(stack.0)
    .bind(below.map_or(i64::MAX, |sequence| sequence.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_barred_content)
    .all(pool, "list barred contents")
    .await
}

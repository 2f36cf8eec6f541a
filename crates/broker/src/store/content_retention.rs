//! Retention of content. The deployment object, its checksum and its author stay; only the bytes are deleted.

use sqlx::{PgConnection, PgPool};

use super::stacks::LockedStack;
use super::{Result, Run as _};

/// The number of versions whose content one statement deletes.
const SLICE: i64 = 200;

/// Deletes the content of versions that are older than `days` and not among the last `versions` of their
/// stack; returns the number of these versions.
///
/// The content of the newest version of a stack always stays, and so does all content that an agent may still
/// have applied: if agents hold the stack, only the content of versions before the oldest one that one of them
/// reported as applied is deleted, and none while one of them has not reported. Of a stack that was deleted
/// `days` ago and that no agent holds any more, nothing stays.
pub async fn content_drop_old(pool: &PgPool, days: u32, versions: u32) -> Result<u64> {
    let mut dropped = 0;
    loop {
        let slice = sqlx::query(
            "UPDATE deployment_objects o SET content = '', content_dropped_at = now()
             FROM (SELECT c.project, c.stack_id, c.sequence_id
                   FROM deployment_objects c JOIN stacks s ON s.project = c.project AND s.id = c.stack_id
                   WHERE c.content_dropped_at IS NULL AND NOT c.is_deletion_marker
                     AND c.created_at < now() - make_interval(days => $1)
                     AND c.sequence_id < s.newest_sequence_id
                     AND c.sequence_id < coalesce(
                        (SELECT min(coalesce(t.applied_sequence_id, 0)) FROM agent_holds h
                         LEFT JOIN stack_status t ON t.project = c.project AND t.stack_id = h.stack_id
                                                 AND t.agent_id = h.agent_id
                         WHERE h.stack_id = c.stack_id AND h.confirmed AND h.ended_at IS NULL), 9223372036854775807)
                     AND (s.deleted_at < now() - make_interval(days => $1)
                          AND NOT EXISTS (SELECT FROM agent_holds h
                                          WHERE h.stack_id = s.id AND h.confirmed AND h.ended_at IS NULL)
                       OR (SELECT count(*) FROM (SELECT FROM deployment_objects n
                          WHERE n.project = c.project AND n.stack_id = c.stack_id AND n.sequence_id > c.sequence_id
                          LIMIT $2) newer) >= $2)
                   ORDER BY c.created_at LIMIT $3) old
             WHERE o.project = old.project AND o.stack_id = old.stack_id AND o.sequence_id = old.sequence_id",
        )
        .bind(i32::try_from(days).unwrap_or(i32::MAX))
        .bind(i64::from(versions))
        .bind(SLICE)
        .affected(pool, "drop old contents")
        .await?;
        dropped += slice;
        if slice < SLICE.unsigned_abs() {
            return Ok(dropped);
        }
    }
}

/// Deletes all content of a deleted stack, even if agents hold it: they do not need it to remove the stack. Returns the number of
/// versions.
pub async fn content_purge_on_conn(conn: &mut PgConnection, stack: &LockedStack) -> Result<u64> {
    let mut purged = 0;
    loop {
        let slice = sqlx::query(
            "UPDATE deployment_objects SET content = '', content_dropped_at = now()
             WHERE project = $1 AND stack_id = $2 AND sequence_id = ANY(ARRAY(
                SELECT o.sequence_id FROM deployment_objects o
                WHERE o.project = $1 AND o.stack_id = $2 AND o.content_dropped_at IS NULL AND NOT o.is_deletion_marker
                LIMIT $3))",
        )
        .bind(&stack.project)
        .bind(stack.id.0)
        .bind(SLICE)
        .affected(&mut *conn, "purge the contents of the stack")
        .await?;
        purged += slice;
        if slice < SLICE.unsigned_abs() {
            return Ok(purged);
        }
    }
}

//! Deployment objects: inserted once, never changed.

use std::collections::HashSet;

use brokkr_api::ids::Checksum;
use brokkr_api::objects::{DeploymentObject, JobRef, Provenance};
use brokkr_api::stacks::WAVE_WAIT_DEFAULT;
use brokkr_api::{SequenceId, StackId};
use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::rollouts::rollout_supersede_on_conn;
use super::stacks::LockedStack;
use super::{Columns as _, Fetch as _, Result, checksum};
use crate::domain::rollout::policy::Policy;

/// A submission: parsed, checked and hashed before the stack is locked.
#[derive(Clone, Debug)]
pub struct NewObject<'a> {
    pub checksum: Checksum,
    pub parsed_digest: Checksum,
    pub is_deletion_marker: bool,
    pub keeps_resources: bool,
    /// Begins at any time, whatever the windows say.
    pub is_urgent: bool,
    pub resources: i32,
    pub wave_wait: WaveWait,
    /// Jobs that run again with it.
    pub rerun: Vec<JobRef>,
    pub content: &'a [u8],
    pub submitted_by: &'a str,
    pub provenance: Provenance,
}

/// For how long the waves of a new version wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveWait {
    /// As the annotations of the stack say now.
    AsAnnotated,
    /// As in the version with the same content.
    Kept(Option<u32>),
}

impl<'a> NewObject<'a> {
    /// Returns a deletion marker: an object without content.
    #[must_use]
    pub fn deletion_marker(submitted_by: &'a str, keeps_resources: bool) -> Self {
        let empty = Checksum::of(b"");
        Self {
            checksum: empty,
            parsed_digest: empty,
            is_deletion_marker: true,
            keeps_resources,
            is_urgent: false,
            resources: 0,
            wave_wait: WaveWait::Kept(None),
            rerun: Vec::new(),
            content: b"",
            submitted_by,
            provenance: Provenance::default(),
        }
    }
}

/// An object with the bytes as submitted.
#[derive(Clone, Debug)]
pub struct StoredObject {
    pub object: DeploymentObject,
    pub content: Bytes,
    /// The content was deleted by retention; only the object is left.
    pub is_dropped: bool,
}

fn read_object(row: PgRow) -> Result<DeploymentObject, sqlx::Error> {
    Ok(DeploymentObject {
        project: row.field("project")?,
        stack_id: StackId(row.field("stack_id")?),
        sequence_id: SequenceId(row.field("sequence_id")?),
        checksum: checksum(row.field("checksum")?),
        parsed_digest: checksum(row.field("parsed_digest")?),
        is_deletion_marker: row.field("is_deletion_marker")?,
        keeps_resources: row.field("keeps_resources")?,
        resources: row.field("resources")?,
        wave_wait_seconds: row.field::<Option<i32>>("wave_wait_seconds")?.and_then(|it| it.try_into().ok()),
        rerun: row.field::<Option<Json<Vec<JobRef>>>>("rerun")?.map(|Json(jobs)| jobs).unwrap_or_default(),
        submitted_by: row.field("submitted_by")?,
        message: row.field("message")?,
        commit: row.field("git_commit")?,
        created_at: row.time("created_at")?,
    })
}

/// A published object.
#[derive(Clone, Debug)]
pub struct PublishedObject {
    pub object: DeploymentObject,
    /// Whether the project has webhooks, which have to be notified.
    pub has_webhooks: bool,
}

/// A rollout that begins with the publication.
#[derive(Clone, Debug)]
pub struct NewRollout {
    /// Determines the order of the agents.
    pub seed: u64,
    pub policy: Policy,
}

/// Takes the next sequence id, inserts the object, makes it the newest of its stack and writes to the outbox: in one
/// statement, because the stack is locked meanwhile. Without a rollout, every agent gets the object, and a deletion marker
/// deletes the stack. Returns none if `respect_bars` is set and the content is barred.
///
/// The caller holds the lock of the stack's row since an earlier statement, so this one sees every bar.
pub async fn deployment_object_publish_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    new: &NewObject<'_>,
    rollout: Option<&NewRollout>,
    respect_bars: bool,
) -> Result<Option<PublishedObject>> {
    if stack.staged.is_some() || stack.widening.is_some() {
        rollout_supersede_on_conn(conn, stack).await?;
    }
    sqlx::query(
        "WITH object AS (
            INSERT INTO deployment_objects (project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker,
                                            keeps_resources, resources, content, submitted_by, message, git_commit,
                                            created_at, is_urgent, rerun, wave_wait_seconds)
            SELECT $1, $2, next_sequence_id(), $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp(), $16, $17,
                   CASE WHEN $18 THEN (
                       SELECT CASE WHEN s.annotations ->> 'brokkr.io/wave-wait' = 'healthy'
                                   THEN coalesce((s.annotations ->> 'brokkr.io/wave-wait-seconds')::integer, $20) END
                       FROM stacks s WHERE s.project = $1 AND s.id = $2) ELSE $19::integer END
            WHERE NOT $12 OR NOT EXISTS (
                SELECT FROM barred_contents WHERE project = $1 AND stack_id = $2 AND checksum = $3)
            RETURNING project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker, keeps_resources,
                      resources, wave_wait_seconds, rerun, submitted_by, message, git_commit, created_at),
         advanced AS (
            UPDATE stacks SET newest_sequence_id = CASE WHEN $13::bigint IS NULL THEN object.sequence_id ELSE newest_sequence_id END,
                              staged_sequence_id = CASE WHEN $13 IS NULL THEN NULL ELSE object.sequence_id END,
                              -- Until every agent gets the object, gained agents do not get the version before it.
                              widening_sequence_id = CASE WHEN $13 IS NULL THEN NULL ELSE widening_sequence_id END,
                              deleted_at = CASE WHEN $13 IS NULL AND object.is_deletion_marker THEN now() ELSE deleted_at END
            FROM object WHERE stacks.project = $1 AND stacks.id = $2),
         begun AS (
            INSERT INTO rollouts (project, stack_id, sequence_id, base_sequence_id, seed, policy, created_by, windows)
            SELECT $1, $2, object.sequence_id, $14, $13, $15, $9, CASE WHEN $16 THEN '[]' ELSE windows_of($1) END FROM object WHERE $13 IS NOT NULL),
         noticed AS (INSERT INTO outbox (project, kind, key) SELECT $1, 'stack', $2 FROM object)
         SELECT object.*, EXISTS (SELECT FROM webhooks w WHERE w.project = $1 AND w.enabled) AS has_webhooks
         FROM object",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(&new.checksum.0[..])
    .bind(&new.parsed_digest.0[..])
    .bind(new.is_deletion_marker)
    .bind(new.keeps_resources)
    .bind(new.resources)
    .bind(new.content)
    .bind(new.submitted_by)
    .bind(new.provenance.message())
    .bind(new.provenance.commit())
    .bind(respect_bars)
    .bind(rollout.map(|rollout| rollout.seed.cast_signed()))
    .bind(stack.newest.map(|base| base.0))
    .bind(rollout.map(|rollout| Json(&rollout.policy)))
    .bind(new.is_urgent)
    .bind((!new.rerun.is_empty()).then_some(Json(&new.rerun)))
    .bind(new.wave_wait == WaveWait::AsAnnotated)
    .bind(match new.wave_wait {
        WaveWait::Kept(seconds) => seconds.map(u32::cast_signed),
        WaveWait::AsAnnotated => None,
    })
    .bind(WAVE_WAIT_DEFAULT.cast_signed())
    .try_map(|row| {
        let has_webhooks = row.field("has_webhooks")?;
        Ok(PublishedObject { object: read_object(row)?, has_webhooks })
    })
    .optional(conn, "publish the deployment object")
    .await
}

pub async fn deployment_object_fetch_on_conn(
    conn: &mut PgConnection,
    sequence_id: SequenceId,
) -> Result<Option<DeploymentObject>> {
    sqlx::query(
        "SELECT project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker, keeps_resources, resources,
                wave_wait_seconds, rerun, submitted_by, message, git_commit, created_at
         FROM deployment_objects WHERE sequence_id = $1",
    )
    .bind(sequence_id.0)
    .try_map(read_object)
    .optional(conn, "read the deployment object")
    .await
}

/// Returns these objects, in no particular order.
pub async fn deployment_object_fetch_many(
    pool: &PgPool,
    sequence_ids: &[i64],
) -> Result<Vec<DeploymentObject>> {
    sqlx::query(
        "SELECT project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker, keeps_resources, resources,
                wave_wait_seconds, rerun, submitted_by, message, git_commit, created_at
         FROM deployment_objects WHERE sequence_id = ANY($1)",
    )
    .bind(sequence_ids)
    .try_map(read_object)
    .all(pool, "read the deployment objects")
    .await
}

/// Returns the object with its content.
pub async fn deployment_object_fetch_content(
    executor: impl PgExecutor<'_>,
    sequence_id: SequenceId,
) -> Result<Option<StoredObject>> {
    sqlx::query(
        "SELECT project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker, keeps_resources, resources,
                wave_wait_seconds, rerun, submitted_by, message, git_commit, created_at, content, content_dropped_at IS NOT NULL AS is_dropped
         FROM deployment_objects WHERE sequence_id = $1",
    )
    .bind(sequence_id.0)
    .try_map(|row| {
        let (content, is_dropped) = (row.field::<Vec<u8>>("content")?.into(), row.field("is_dropped")?);
        Ok(StoredObject { object: read_object(row)?, content, is_dropped })
    })
    .optional(executor, "read the content of the deployment object")
    .await
}

/// Returns the target of a rollback: the last version before `newest` that every agent got, with a different content that is
/// not barred.
pub async fn deployment_object_before_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    newest: &DeploymentObject,
) -> Result<Option<SequenceId>> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT o.sequence_id FROM deployment_objects o
         WHERE o.project = $1 AND o.stack_id = $2 AND o.sequence_id < $3 AND o.checksum <> $4
           AND NOT o.is_deletion_marker
           AND NOT EXISTS (SELECT FROM rollouts r
                           WHERE r.project = $1 AND r.stack_id = $2 AND r.sequence_id = o.sequence_id
                             AND r.state <> 'completed')
           AND NOT EXISTS (SELECT FROM barred_contents b
                           WHERE b.project = $1 AND b.stack_id = $2 AND b.checksum = o.checksum)
         ORDER BY o.sequence_id DESC LIMIT 1",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(newest.sequence_id.0)
    .bind(&newest.checksum.0[..])
    .optional(conn, "find the previous version")
    .await?;
    Ok(found.map(SequenceId))
}

/// Returns which of these stacks can be rolled back.
pub async fn deployment_object_rollable(
    pool: &PgPool,
    project: &str,
    stacks: &[StackId],
) -> Result<HashSet<StackId>> {
    let found: Vec<Uuid> = sqlx::query_scalar(
        "SELECT s.id FROM stacks s JOIN deployment_objects n ON n.sequence_id = coalesce(s.staged_sequence_id, s.newest_sequence_id)
         WHERE s.project = $1 AND s.id = ANY($2) AND s.deleted_at IS NULL
           AND EXISTS (SELECT FROM deployment_objects o
                       WHERE o.project = $1 AND o.stack_id = s.id AND o.sequence_id < n.sequence_id
                         AND o.checksum <> n.checksum AND NOT o.is_deletion_marker
                         AND NOT EXISTS (SELECT FROM rollouts r
                                         WHERE r.project = $1 AND r.stack_id = s.id AND r.sequence_id = o.sequence_id
                                           AND r.state <> 'completed')
                         AND NOT EXISTS (SELECT FROM barred_contents b
                                         WHERE b.project = $1 AND b.stack_id = s.id AND b.checksum = o.checksum))",
    )
    .bind(project)
    .bind(stacks.iter().map(|stack| stack.0).collect::<Vec<_>>())
    .all(pool, "find stacks with a previous version")
    .await?;
    Ok(found.into_iter().map(StackId).collect())
}

/// Returns up to `limit` versions of a stack, newest first, plus one if there are more.
pub async fn deployment_object_list(
    pool: &PgPool,
    project: &str,
    stack: StackId,
    below: Option<SequenceId>,
    limit: usize,
) -> Result<Vec<DeploymentObject>> {
    sqlx::query(
        "SELECT project, stack_id, sequence_id, checksum, parsed_digest, is_deletion_marker, keeps_resources, resources,
                wave_wait_seconds, rerun, submitted_by, message, git_commit, created_at
         FROM deployment_objects WHERE project = $1 AND stack_id = $2 AND sequence_id < $3
         ORDER BY sequence_id DESC LIMIT $4",
    )
    .bind(project)
    .bind(stack.0)
    .bind(below.map_or(i64::MAX, |sequence| sequence.0))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_object)
    .all(pool, "list the deployment objects")
    .await
}

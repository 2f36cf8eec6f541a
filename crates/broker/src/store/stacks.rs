//! Stacks: named sets of resources. A deleted stack is kept; its name can be reused.

use brokkr_api::page::Sort;
use brokkr_api::rollouts::RolloutPolicy;
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_api::{Labels, SequenceId, StackId};
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor};

use super::idempotency_keys::KeyOwner;
use super::{Columns as _, Fetch as _, Result, Run as _, known};

/// The id or name of a stack.
#[derive(Clone, Debug)]
pub enum StackRef {
    Id(StackId),
    Name(String),
}

impl StackRef {
    /// Parses an id or a name. A name never looks like an id.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}

/// A stack with its row locked.
#[derive(Clone, Debug)]
pub struct LockedStack {
    pub project: String,
    pub id: StackId,
    pub name: String,
    /// The version that every agent gets, unless a rollout releases a newer one to it.
    pub newest: Option<SequenceId>,
    /// The last submitted version, if not every agent gets it.
    pub staged: Option<SequenceId>,
    /// The rollout of `newest` to agents that the stack has gained, if not all of these get it.
    pub widening: Option<SequenceId>,
    pub deleted_at: Option<Timestamp>,
    /// The policies for its rollouts, the narrowest scope first.
    pub policies: Vec<RolloutPolicy>,
}

impl LockedStack {
    /// Returns the last submitted version.
    #[must_use]
    pub fn last(&self) -> Option<SequenceId> {
        self.staged.or(self.newest)
    }
}

fn read_stack(row: PgRow) -> Result<Stack, sqlx::Error> {
    let selectors: Vec<String> = row.field("selectors")?;
    let base = row.field::<Option<i64>>("newest_sequence_id")?.map(SequenceId);
    let staged = row.field::<Option<i64>>("staged_sequence_id")?.map(SequenceId);
    Ok(Stack {
        project: row.field("project")?,
        id: StackId(row.field("id")?),
        name: row.known("name")?,
        labels: row.json("labels")?,
        annotations: row.json("annotations")?,
        drift: row.known("drift")?,
        targets: StackTargets {
            agents: row.field("target_agents")?,
            selectors: selectors.iter().map(|text| known(text)).collect::<Result<_, _>>()?,
        },
        sequence_id: staged.or(base),
        base_sequence_id: base.filter(|_| staged.is_some()),
        created_at: row.time("created_at")?,
        deleted_at: row.time_opt("deleted_at")?,
    })
}

macro_rules! stack_columns {
    ($($rest:literal),*) => {
        concat!(
            "SELECT s.project, s.id, s.name, s.labels, s.annotations, s.drift, s.newest_sequence_id, s.staged_sequence_id, s.created_at, s.deleted_at,
                    ARRAY(SELECT a.name FROM stack_targets t JOIN agents a ON a.id = t.agent_id
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY a.name) AS target_agents,
                    ARRAY(SELECT t.selector FROM stack_selectors t
                          WHERE t.project = s.project AND t.stack_id = s.id ORDER BY t.selector) AS selectors
             FROM stacks s ",
            $($rest),*
        )
    };
}

/// Returns a stack by id or by name. By name, prefers the non-deleted one, then the last deleted one.
pub async fn stack_fetch(
    executor: impl PgExecutor<'_>,
    project: &str,
    stack: &StackRef,
) -> Result<Option<Stack>> {
    let query = match stack {
        StackRef::Id(id) => {
            sqlx::query(stack_columns!("WHERE s.project = $1 AND s.id = $2")).bind(project).bind(id.0)
        }
        StackRef::Name(name) => sqlx::query(stack_columns!(
            "WHERE s.project = $1 AND s.name = $2 ORDER BY s.deleted_at DESC NULLS FIRST LIMIT 1"
        ))
        .bind(project)
        .bind(name),
    };
    query.try_map(read_stack).optional(executor, "read the stack").await
}

/// Non-deleted stacks with this text in their names.
macro_rules! not_deleted {
    ($rest:literal) => {
        stack_columns!(
            "WHERE s.project = $1 AND s.deleted_at IS NULL AND ($2::text IS NULL OR position($2 IN s.name) > 0) ",
            $rest
        )
    };
}

/// Returns up to `most` non-deleted stacks after the cursor.
pub async fn stack_list(
    executor: impl PgExecutor<'_>,
    project: &str,
    name: Option<&str>,
    sort: Sort,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<Stack>> {
    let sql = match sort {
        Sort::Name => not_deleted!("AND ($3::text IS NULL OR s.name > $3) ORDER BY s.name LIMIT $4"),
        Sort::NameDown => not_deleted!("AND ($3::text IS NULL OR s.name < $3) ORDER BY s.name DESC LIMIT $4"),
        Sort::Created => not_deleted!("AND ($3::text IS NULL OR s.id > $3::uuid) ORDER BY s.id LIMIT $4"),
        Sort::CreatedDown => {
            not_deleted!("AND ($3::text IS NULL OR s.id < $3::uuid) ORDER BY s.id DESC LIMIT $4")
        }
    };
    stacks_by(executor, sql, project, name, after, most, "list the stacks").await
}

/// Returns up to `most` deleted stacks that agents still hold, after the cursor. Oldest first and not by
/// name, because names of deleted stacks are not unique.
pub async fn stack_list_owed(
    executor: impl PgExecutor<'_>,
    project: &str,
    name: Option<&str>,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<Stack>> {
    let sql = stack_columns!(
        "WHERE s.project = $1 AND s.deleted_at IS NOT NULL AND ($2::text IS NULL OR position($2 IN s.name) > 0)
           AND EXISTS (SELECT FROM agent_holds h
                       WHERE h.stack_id = s.id AND h.confirmed AND h.ended_at IS NULL)
           AND ($3::text IS NULL OR s.id > $3::uuid)
         ORDER BY s.id LIMIT $4"
    );
    stacks_by(executor, sql, project, name, after, most, "list the deleted stacks").await
}

/// Returns the stacks of a project ($1) with this text in their names ($2), after the cursor ($3), at most
/// $4.
async fn stacks_by(
    executor: impl PgExecutor<'_>,
    sql: &'static str,
    project: &str,
    name: Option<&str>,
    after: Option<&str>,
    most: usize,
    action: &'static str,
) -> Result<Vec<Stack>> {
    sqlx::query(sql)
        .bind(project)
        .bind(name)
        .bind(after)
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .try_map(read_stack)
        .all(executor, action)
        .await
}

/// Returns the labels of each non-deleted stack with this text in its name.
pub async fn stack_labels(
    executor: impl PgExecutor<'_>,
    project: &str,
    name: Option<&str>,
) -> Result<Vec<Labels>> {
    let labels: Vec<Json<Labels>> = sqlx::query_scalar(
        "SELECT labels FROM stacks
         WHERE project = $1 AND deleted_at IS NULL AND ($2::text IS NULL OR position($2 IN name) > 0)",
    )
    .bind(project)
    .bind(name)
    .all(executor, "count the stacks")
    .await?;
    Ok(labels.into_iter().map(|labels| labels.0).collect())
}

/// Reads and locks one stack: further columns, further conditions, and which one.
macro_rules! locked_stack {
    ($columns:literal, $where:literal, $stack:literal) => {
        concat!(
            "SELECT s.project, s.id, s.name, s.newest_sequence_id, s.staged_sequence_id, s.widening_sequence_id, s.deleted_at,
                    coalesce((SELECT jsonb_agg(p.policy ORDER BY p.stack_id NULLS LAST, p.project NULLS LAST)
                              FROM rollout_policies p
                              WHERE (p.project IS NULL OR p.project = s.project)
                                AND (p.stack_id IS NULL OR p.stack_id = s.id)), '[]') AS policies",
            $columns,
            " FROM stacks s WHERE ",
            $where,
            "s.project = $1 AND ",
            $stack,
            " FOR UPDATE OF s"
        )
    };
}

/// Locks the stack's row. Because of this lock, sequence ids within a stack are in the order of commits.
pub async fn stack_lock_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: &StackRef,
) -> Result<Option<LockedStack>> {
    let query = match stack {
        StackRef::Id(id) => sqlx::query(locked_stack!("", "", "s.id = $2")).bind(project).bind(id.0),
        StackRef::Name(name) => {
            sqlx::query(locked_stack!("", "", "s.name = $2 ORDER BY s.deleted_at DESC NULLS FIRST LIMIT 1"))
                .bind(project)
                .bind(name)
        }
    };
    query.try_map(read_locked).optional(conn, "lock the stack").await
}

fn read_locked(row: PgRow) -> Result<LockedStack, sqlx::Error> {
    Ok(LockedStack {
        project: row.field("project")?,
        id: StackId(row.field("id")?),
        name: row.field("name")?,
        newest: row.field::<Option<i64>>("newest_sequence_id")?.map(SequenceId),
        staged: row.field::<Option<i64>>("staged_sequence_id")?.map(SequenceId),
        widening: row.field::<Option<i64>>("widening_sequence_id")?.map(SequenceId),
        deleted_at: row.time_opt("deleted_at")?,
        policies: row.json("policies")?,
    })
}

/// Claims an idempotency key, then locks the stack's row. The filter on the claim makes PostgreSQL execute it first.
macro_rules! claim_and_lock {
    ($stack:literal) => {
        concat!(
            "WITH claimed AS (
                INSERT INTO idempotency_keys (project, principal, key, request_digest) VALUES ($3, $4, $5, $6)
                ON CONFLICT DO NOTHING RETURNING true)
             ",
            locked_stack!(
                ", EXISTS (SELECT FROM claimed) AS is_claimed",
                "(SELECT count(*) FROM claimed) >= 0 AND ",
                $stack
            )
        )
    };
}

/// Claims the key as `idempotency_key_claim_on_conn` does, and locks the stack's row, in one statement. Returns whether the
/// key was claimed; none if there is no such stack.
pub async fn stack_lock_claiming_on_conn(
    conn: &mut PgConnection,
    project: &str,
    stack: &StackRef,
    owner: &KeyOwner<'_>,
    request_digest: &[u8],
) -> Result<Option<(bool, LockedStack)>> {
    let query = match stack {
        StackRef::Id(id) => sqlx::query(claim_and_lock!("s.id = $2")).bind(project).bind(id.0),
        StackRef::Name(name) => {
            sqlx::query(claim_and_lock!("s.name = $2 ORDER BY s.deleted_at DESC NULLS FIRST LIMIT 1"))
                .bind(project)
                .bind(name)
        }
    };
    query
        .bind(owner.project)
        .bind(owner.principal)
        .bind(owner.key)
        .bind(request_digest)
        .try_map(|row| Ok((row.field("is_claimed")?, read_locked(row)?)))
        .optional(conn, "claim the idempotency key and lock the stack")
        .await
}

/// Inserts a stack, unless a non-deleted one of that name exists.
pub async fn stack_insert_on_conn(
    conn: &mut PgConnection,
    project: &str,
    id: StackId,
    name: &str,
) -> Result<bool> {
    sqlx::query(
        "INSERT INTO stacks (project, id, name) VALUES ($1, $2, $3)
         ON CONFLICT (project, name) WHERE deleted_at IS NULL DO NOTHING",
    )
    .bind(project)
    .bind(id.0)
    .bind(name)
    .affected(conn, "insert the stack")
    .await
    .map(|rows| rows == 1)
}

pub async fn stack_change_on_conn(
    conn: &mut PgConnection,
    stack: &LockedStack,
    change: &PutStack,
) -> Result<()> {
    sqlx::query(
        "UPDATE stacks SET labels = coalesce($3, labels), annotations = coalesce($4, annotations),
                           drift = coalesce($5, drift)
         WHERE project = $1 AND id = $2",
    )
    .bind(&stack.project)
    .bind(stack.id.0)
    .bind(change.labels.as_ref().map(Json))
    .bind(change.annotations.as_ref().map(Json))
    .bind(change.drift.map(|drift| drift.to_string()))
    .run(conn, "change the stack")
    .await
}

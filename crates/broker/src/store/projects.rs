//! Projects, their quotas and their usage. The usage is the sum over a project's few rows in `project_usage`,
//! which triggers maintain: nothing is counted by scanning, except webhooks, of which there are few.

use brokkr_api::projects::{Project, PutQuotas, Quotas};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::{Columns as _, Fetch as _, Result, Run as _};

fn read_project(row: PgRow) -> Result<Project, sqlx::Error> {
    let count = |figure: i64| u64::try_from(figure).unwrap_or_default();
    Ok(Project {
        name: row.known("name")?,
        created_at: row.time("created_at")?,
        restricted: row.field("restricted")?,
        allowed: Quotas {
            stacks: count(row.field("max_stacks")?),
            submissions_per_hour: count(row.field("max_submissions_per_hour")?),
            stored_bytes: count(row.field("max_stored_bytes")?),
            tokens: count(row.field("max_tokens")?),
            webhooks: count(row.field("max_webhooks")?),
        },
        used: Quotas {
            stacks: count(row.field("stacks")?),
            submissions_per_hour: count(row.field("submissions")?),
            stored_bytes: count(row.field("stored_bytes")?),
            tokens: count(row.field("tokens")?),
            webhooks: count(row.field("webhooks")?),
        },
    })
}

macro_rules! project_columns {
    ($rest:literal) => {
        concat!(
            "SELECT p.name, p.created_at, p.restricted, p.max_stacks, p.max_submissions_per_hour, p.max_stored_bytes,
                    p.max_tokens, p.max_webhooks, u.*
             FROM projects p CROSS JOIN LATERAL (
                SELECT coalesce(sum(stacks), 0)::bigint AS stacks,
                       coalesce(sum(submissions) FILTER (WHERE hour = date_trunc('hour', now())), 0)::bigint AS submissions,
                       coalesce(sum(stored_bytes), 0)::bigint AS stored_bytes,
                       coalesce(sum(tokens), 0)::bigint AS tokens,
                       (SELECT count(*) FROM webhooks w WHERE w.project = p.name) AS webhooks
                FROM project_usage WHERE project = p.name) u ",
            $rest
        )
    };
}

pub async fn project_fetch(executor: impl PgExecutor<'_>, name: &str) -> Result<Option<Project>> {
    sqlx::query(project_columns!("WHERE p.name = $1"))
        .bind(name)
        .try_map(read_project)
        .optional(executor, "read the project")
        .await
}

pub async fn project_exists(pool: &PgPool, name: &str) -> Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM projects WHERE name = $1)")
        .bind(name)
        .one(pool, "find the project")
        .await
}

/// Returns up to `limit` projects, sorted by name, plus one if there are more; with a name, only that one.
pub async fn project_list(
    pool: &PgPool,
    only: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Project>> {
    sqlx::query(project_columns!(
        "WHERE ($1::text IS NULL OR p.name = $1) AND p.name COLLATE \"C\" > $2
         ORDER BY p.name COLLATE \"C\" LIMIT $3"
    ))
    .bind(only)
    .bind(after.unwrap_or_default())
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .try_map(read_project)
    .all(pool, "list the projects")
    .await
}

/// Creates the project if it does not exist, and sets the given quotas. Returns whether it is new.
pub async fn project_put_on_conn(conn: &mut PgConnection, name: &str, quotas: &PutQuotas) -> Result<bool> {
    let created = sqlx::query("INSERT INTO projects (name) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(name)
        .affected(&mut *conn, "insert the project")
        .await?
        == 1;
    let figure = |quota: Option<u64>| quota.map(|quota| i64::try_from(quota).unwrap_or(i64::MAX));
    sqlx::query(
        "UPDATE projects SET
            max_stacks = coalesce($2, max_stacks),
            max_submissions_per_hour = coalesce($3, max_submissions_per_hour),
            max_stored_bytes = coalesce($4, max_stored_bytes),
            max_tokens = coalesce($5, max_tokens),
            max_webhooks = coalesce($6, max_webhooks)
         WHERE name = $1",
    )
    .bind(name)
    .bind(figure(quotas.stacks))
    .bind(figure(quotas.submissions_per_hour))
    .bind(figure(quotas.stored_bytes))
    .bind(figure(quotas.tokens))
    .bind(figure(quotas.webhooks))
    .run(conn, "change the project")
    .await?;
    Ok(created)
}

/// Restricts the project to its grants, or lifts the restriction. Returns whether that changed something.
pub async fn project_restrict_on_conn(conn: &mut PgConnection, name: &str, restricted: bool) -> Result<bool> {
    sqlx::query("UPDATE projects SET restricted = $2 WHERE name = $1 AND restricted <> $2")
        .bind(name)
        .bind(restricted)
        .affected(conn, "restrict the project to its grants")
        .await
        .map(|rows| rows == 1)
}

/// The outcome of deleting a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    Gone,
    Absent,
    /// It is not empty; names what it still has.
    InUse(&'static str),
}

/// Deletes the project if it is empty. Expired tokens and idempotency keys are deleted with it.
pub async fn project_delete_on_conn(conn: &mut PgConnection, name: &str) -> Result<Deleted> {
    let doing = "delete the project";
    let row: Option<(bool, bool)> = sqlx::query_as(
        "SELECT EXISTS (SELECT FROM stacks WHERE project = $1),
                EXISTS (SELECT FROM api_tokens
                        WHERE project = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
         FROM projects WHERE name = $1 FOR UPDATE",
    )
    .bind(name)
    .optional(&mut *conn, doing)
    .await?;
    match row {
        None => return Ok(Deleted::Absent),
        Some((true, _)) => return Ok(Deleted::InUse("stacks")),
        Some((_, true)) => return Ok(Deleted::InUse("valid tokens")),
        Some((false, false)) => {}
    }
    for statement in [
        "DELETE FROM api_tokens WHERE project = $1",
        "DELETE FROM idempotency_keys WHERE project = $1",
        "DELETE FROM rollout_policies WHERE project = $1",
        "DELETE FROM projects WHERE name = $1",
    ] {
        match sqlx::query(statement).bind(name).run(&mut *conn, doing).await {
            Err(error) if error.is_referred_to() => {
                return Ok(Deleted::InUse("webhooks, grants or other resources"));
            }
            done => done?,
        };
    }
    Ok(Deleted::Gone)
}

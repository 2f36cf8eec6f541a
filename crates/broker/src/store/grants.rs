//! Grants: which agents a project may use, for what, and with which account.

use std::sync::Arc;

use brokkr_api::GrantId;
use brokkr_api::envelope::Grant;
use brokkr_api::grants::{ProjectGrant, PutGrant};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::{Doing as _, Fetch as _, Result, Run as _, known};
use crate::domain::grants::GrantFacts;

#[derive(sqlx::FromRow)]
struct GrantRow {
    id: Uuid,
    name: String,
    project: String,
    selector: String,
    namespaces: Vec<String>,
    kinds: Vec<String>,
    account: String,
    created_by: String,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
}

impl GrantRow {
    fn grant(self) -> Result<ProjectGrant, sqlx::Error> {
        Ok(ProjectGrant {
            id: GrantId(self.id),
            name: known(&self.name)?,
            project: self.project,
            selector: known(&self.selector)?,
            namespaces: self.namespaces,
            kinds: self.kinds,
            account: self.account,
            created_by: self.created_by,
            created_at: self.created_at.to_jiff(),
            updated_at: self.updated_at.to_jiff(),
        })
    }

    fn facts(self) -> Result<GrantFacts, sqlx::Error> {
        let (namespaces, kinds, account) = (self.namespaces, self.kinds, Some(self.account));
        Ok(GrantFacts {
            id: GrantId(self.id),
            project: self.project,
            selector: known(&self.selector)?,
            allows: Arc::new(Grant { namespaces, kinds, account }),
        })
    }
}

/// Returns up to `limit` grants, sorted by name, plus one if there are more.
pub async fn grant_list(pool: &PgPool, after: Option<&str>, limit: usize) -> Result<Vec<ProjectGrant>> {
    let rows: Vec<GrantRow> = sqlx::query_as("SELECT * FROM grants WHERE name > $1 ORDER BY name LIMIT $2")
        .bind(after.unwrap_or_default())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .all(pool, "list the grants")
        .await?;
    rows.into_iter().map(GrantRow::grant).collect::<Result<_, _>>().doing("list the grants")
}

/// Returns the grants of one project, oldest first.
pub async fn grants_of_project(pool: &PgPool, project: &str) -> Result<Vec<ProjectGrant>> {
    let rows: Vec<GrantRow> = sqlx::query_as("SELECT * FROM grants WHERE project = $1 ORDER BY id")
        .bind(project)
        .all(pool, "list the grants of a project")
        .await?;
    rows.into_iter().map(GrantRow::grant).collect::<Result<_, _>>().doing("list the grants of a project")
}

pub async fn grant_fetch(executor: impl PgExecutor<'_>, name: &str) -> Result<Option<ProjectGrant>> {
    let row: Option<GrantRow> = sqlx::query_as("SELECT * FROM grants WHERE name = $1")
        .bind(name)
        .optional(executor, "read the grant")
        .await?;
    row.map(GrantRow::grant).transpose().doing("read the grant")
}

/// Locks all grants until the transaction ends: the effect of a change depends on all grants of a project.
pub async fn grants_lock_on_conn(conn: &mut PgConnection) -> Result<()> {
    sqlx::query("LOCK TABLE grants IN SHARE ROW EXCLUSIVE MODE").run(conn, "lock the grants").await
}

pub async fn grant_count_on_conn(conn: &mut PgConnection) -> Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM grants").one(conn, "count the grants").await
}

/// Creates or replaces the grant; returns none if the project does not exist.
pub async fn grant_put_on_conn(
    conn: &mut PgConnection,
    id: GrantId,
    name: &str,
    grant: &PutGrant,
    created_by: &str,
) -> Result<Option<ProjectGrant>> {
    let row: Option<GrantRow> = sqlx::query_as(
        "INSERT INTO grants (id, name, project, selector, namespaces, kinds, account, created_by)
         SELECT $1, $2, name, $4, $5, $6, $7, $8 FROM projects WHERE name = $3
         ON CONFLICT (name) DO UPDATE SET selector = excluded.selector, namespaces = excluded.namespaces,
             kinds = excluded.kinds, account = excluded.account, updated_at = now()
         RETURNING *",
    )
    .bind(id.0)
    .bind(name)
    .bind(&grant.project)
    .bind(grant.selector.to_string())
    .bind(&grant.namespaces)
    .bind(&grant.kinds)
    .bind(&grant.account)
    .bind(created_by)
    .optional(conn, "store the grant")
    .await?;
    row.map(GrantRow::grant).transpose().doing("store the grant")
}

pub async fn grant_delete_on_conn(conn: &mut PgConnection, id: GrantId) -> Result<()> {
    sqlx::query("DELETE FROM grants WHERE id = $1").bind(id.0).run(conn, "delete the grant").await
}

/// Returns all grants: there are few, and the rights of a project follow from all of its own.
pub async fn facts_of_all_grants_on_conn(conn: &mut PgConnection) -> Result<Vec<GrantFacts>> {
    let rows: Vec<GrantRow> =
        sqlx::query_as("SELECT * FROM grants ORDER BY id").all(conn, "read all grants").await?;
    rows.into_iter().map(GrantRow::facts).collect::<Result<_, _>>().doing("read all grants")
}

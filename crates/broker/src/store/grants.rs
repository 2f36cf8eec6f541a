//! Grants: which agents a project may use, for what, and with which account.

use std::sync::Arc;

use brokkr_api::GrantId;
use brokkr_api::envelope::Grant;
use brokkr_api::grants::{ProjectGrant, PutGrant};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::agent_upgrades::facts_of_upgrades_on_conn;
use super::health_rules::facts_of_health_rules_on_conn;
use super::windows::facts_of_windows_on_conn;
use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::grants::{GrantFacts, Rules};

fn read_grant(row: PgRow) -> Result<ProjectGrant, sqlx::Error> {
    Ok(ProjectGrant {
        id: GrantId(row.field("id")?),
        name: row.known("name")?,
        project: row.field("project")?,
        selector: row.known("selector")?,
        namespaces: row.field("namespaces")?,
        kinds: row.field("kinds")?,
        account: row.field("account")?,
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

fn read_grant_facts(row: PgRow) -> Result<GrantFacts, sqlx::Error> {
    let (namespaces, kinds) = (row.field("namespaces")?, row.field("kinds")?);
    Ok(GrantFacts {
        id: GrantId(row.field("id")?),
        project: row.field("project")?,
        selector: row.known("selector")?,
        allows: Arc::new(Grant { namespaces, kinds, account: Some(row.field("account")?) }),
    })
}

/// Returns up to `limit` grants, sorted by name, plus one if there are more.
pub async fn grant_list(pool: &PgPool, after: Option<&str>, limit: usize) -> Result<Vec<ProjectGrant>> {
    sqlx::query("SELECT * FROM grants WHERE name > $1 ORDER BY name LIMIT $2")
        .bind(after.unwrap_or_default())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .try_map(read_grant)
        .all(pool, "list the grants")
        .await
}

/// Returns the grants of one project, oldest first.
pub async fn grants_of_project(executor: impl PgExecutor<'_>, project: &str) -> Result<Vec<ProjectGrant>> {
    sqlx::query("SELECT * FROM grants WHERE project = $1 ORDER BY id")
        .bind(project)
        .try_map(read_grant)
        .all(executor, "list the grants of a project")
        .await
}

pub async fn grant_fetch(executor: impl PgExecutor<'_>, name: &str) -> Result<Option<ProjectGrant>> {
    sqlx::query("SELECT * FROM grants WHERE name = $1")
        .bind(name)
        .try_map(read_grant)
        .optional(executor, "read the grant")
        .await
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
    sqlx::query(
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
    .try_map(read_grant)
    .optional(conn, "store the grant")
    .await
}

pub async fn grant_delete_on_conn(conn: &mut PgConnection, id: GrantId) -> Result<()> {
    sqlx::query("DELETE FROM grants WHERE id = $1").bind(id.0).run(conn, "delete the grant").await
}

/// Returns all grants, windows, health rules and upgrades of the installation: there are few, and the rights of a project depend on all of its grants.
pub async fn facts_of_rules_on_conn(conn: &mut PgConnection) -> Result<Rules> {
    let doing = "read all grants";
    let grants = sqlx::query("SELECT * FROM grants ORDER BY id").try_map(read_grant_facts);
    let grants = grants.all(&mut *conn, doing).await?;
    let unrestricted: Vec<String> =
        sqlx::query_scalar("SELECT name FROM projects WHERE NOT restricted").all(&mut *conn, doing).await?;
    let windows = facts_of_windows_on_conn(&mut *conn).await?;
    let health_rules = facts_of_health_rules_on_conn(&mut *conn).await?;
    let upgrades = facts_of_upgrades_on_conn(conn).await?;
    Ok(Rules { grants, unrestricted: unrestricted.into_iter().collect(), windows, health_rules, upgrades })
}

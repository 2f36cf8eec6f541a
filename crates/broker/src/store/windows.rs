//! Maintenance windows and freezes: when agents may begin new versions.

use brokkr_api::windows::{PutWindow, Window};
use brokkr_api::{Name, WindowId};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::{Columns as _, Fetch as _, Result, Run as _};
use crate::domain::windows::{WindowFacts, Windows};

fn read_window(row: PgRow) -> Result<Window, sqlx::Error> {
    Ok(Window {
        id: WindowId(row.field("id")?),
        name: row.known("name")?,
        project: row.field("project")?,
        selector: row.known("selector")?,
        rule: row.json("rule")?,
        created_by: row.field("created_by")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// Returns up to `limit` windows, sorted by name, plus one if there are more: all of them, or those that concern a project.
pub async fn window_list(
    pool: &PgPool,
    only: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Window>> {
    let sql =
        "SELECT * FROM windows WHERE name > $1 AND ($3::text IS NULL OR project IS NULL OR project = $3)
               ORDER BY name LIMIT $2";
    sqlx::query(sql)
        .bind(after.unwrap_or_default())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
        .bind(only)
        .try_map(read_window)
        .all(pool, "list the windows")
        .await
}

pub async fn window_fetch(executor: impl PgExecutor<'_>, name: &str) -> Result<Option<Window>> {
    sqlx::query("SELECT * FROM windows WHERE name = $1")
        .bind(name)
        .try_map(read_window)
        .optional(executor, "read the window")
        .await
}

/// Locks all windows until the transaction ends, so that their number is certain.
pub async fn windows_lock_on_conn(conn: &mut PgConnection) -> Result<i64> {
    sqlx::query("LOCK TABLE windows IN SHARE ROW EXCLUSIVE MODE").run(&mut *conn, "lock the windows").await?;
    sqlx::query_scalar("SELECT count(*) FROM windows").one(conn, "count the windows").await
}

/// Creates or replaces the window.
pub async fn window_put_on_conn(
    conn: &mut PgConnection,
    id: WindowId,
    name: &Name,
    window: &PutWindow,
    created_by: &str,
) -> Result<Window> {
    sqlx::query(
        "INSERT INTO windows (id, name, project, selector, rule, created_by) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (name) DO UPDATE SET project = excluded.project, selector = excluded.selector,
                                          rule = excluded.rule, updated_at = now()
         RETURNING *",
    )
    .bind(id.0)
    .bind(name.as_str())
    .bind(&window.project)
    .bind(window.selector.to_string())
    .bind(Json(&window.rule))
    .bind(created_by)
    .try_map(read_window)
    .one(conn, "store the window")
    .await
}

pub async fn window_delete_on_conn(conn: &mut PgConnection, id: WindowId) -> Result<()> {
    sqlx::query("DELETE FROM windows WHERE id = $1").bind(id.0).run(conn, "delete the window").await
}

/// Returns all windows: there are few, and which of them apply to an agent depends on all of them.
pub async fn facts_of_windows_on_conn(conn: &mut PgConnection) -> Result<Windows> {
    let windows = sqlx::query("SELECT * FROM windows").try_map(|row| {
        let Window { id, name, project, selector, rule, .. } = read_window(row)?;
        Ok(WindowFacts::new(id, name.to_string(), project, selector, rule))
    });
    Ok(Windows::new(windows.all(conn, "read all windows").await?))
}

//! Migrations: compiled in, run by a subcommand under an advisory lock of PostgreSQL, never at start.
//!
//! A migration only expands the schema, so that the previous release still works; unused parts are removed
//! one release later. A migration and the record of its success are one transaction: if the process is
//! killed, the schema is either unchanged or migrated.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Doing as _, Fetch as _, Result, StoreError, connect_options};

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("./migrations");
    // A database that a newer release has migrated also fits this one, so that a release can be rolled back.
    migrator.set_ignore_missing(true);
    migrator
});

/// A statement that waits for a lock makes every later one wait behind it, so it gives up soon and is retried.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '2s'";
const PAUSE: Duration = Duration::from_secs(1);
/// How long the migration is retried.
const RETRY_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("failed to migrate the schema")]
    Migrate(#[from] MigrateError),
    #[error(
        "failed to migrate the schema: another session has held a lock for {} s; find it in pg_stat_activity, \
         then run the migration again",
        RETRY_FOR.as_secs()
    )]
    Locked(#[source] MigrateError),
    #[error(
        "the schema is not migrated: {missing} of {all} migrations are missing; run `brokkr-broker migrate`"
    )]
    NotMigrated { missing: usize, all: usize },
}

/// Brings the schema up to date. Repeating it does nothing; two at once run one after the other.
pub async fn schema_migrate(url: &str) -> Result<(), SchemaError> {
    let until = tokio::time::Instant::now() + RETRY_FOR;
    loop {
        match attempt(url).await {
            Err(SchemaError::Migrate(error)) if waits_for_a_lock(&error) => {
                if tokio::time::Instant::now() >= until {
                    return Err(SchemaError::Locked(error));
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to migrate: another session holds a lock; retrying"
                );
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Runs the migrations on a separate connection, so that its locks are released when the connection ends.
async fn attempt(url: &str) -> Result<(), SchemaError> {
    let options = connect_options(url)?.application_name("brokkr-broker migrate");
    let mut conn = PgConnection::connect_with(&options).await.doing("connect to the database")?;
    sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut conn).await.doing("limit the time to wait for locks")?;
    let migrated = MIGRATOR.run(&mut conn).await;
    conn.close().await.doing("close the connection")?;
    Ok(migrated?)
}

/// Returns whether a lock was not acquired in time, or a deadlock occurred.
fn waits_for_a_lock(error: &MigrateError) -> bool {
    let (MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = error else {
        return false;
    };
    let code = cause.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["55P03", "40P01"].contains(&code.as_ref()))
}

/// Refuses a database that lacks a migration. One with more migrations is fine: it belongs to a newer broker.
pub async fn schema_check(pool: &PgPool) -> Result<(), SchemaError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .one(pool, "find the table of migrations")
        .await?;
    let done: Vec<i64> = if exists {
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
            .all(pool, "read the migrations")
            .await?
    } else {
        Vec::new()
    };
    let missing = MIGRATOR.iter().filter(|migration| !done.contains(&migration.version)).count();
    if missing > 0 {
        return Err(SchemaError::NotMigrated { missing, all: MIGRATOR.iter().count() });
    }
    Ok(())
}

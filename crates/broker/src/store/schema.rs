//! Migrations: compiled in, run by a subcommand under an advisory lock of PostgreSQL, never at start.
//!
//! A migration only expands the schema, so that the previous release still works; unused parts are removed
//! one release later. A migration and the record of its success are one transaction: if the process is
//! killed, the schema is either unchanged or migrated. The exception is a migration that begins with
//! `-- no-transaction`: a single `CREATE INDEX CONCURRENTLY IF NOT EXISTS`, which does not block writes to a large table.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::privileges::{GrantError, ServingRole, privileges_grant_on_conn};
use super::{Doing as _, Fetch as _, Result, Run as _, StoreError, connect_options};

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("./migrations");
    // A database that a newer release has migrated also fits this one, so that a release can be rolled back.
    migrator.set_ignore_missing(true);
    migrator
});

/// A statement that waits for a lock makes every later one wait behind it, so it gives up soon and is retried.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '500ms'";
/// Creating an index concurrently waits for older transactions, but nothing that the broker does waits for it.
const CONCURRENT_LOCK_TIMEOUT: &str = "SET lock_timeout = '60s'";
/// PostgreSQL interrupts an autovacuum that another session waits for, but only after `deadlock_timeout` (1 s).
const AUTOVACUUM_LOCK_TIMEOUT: &str = "SET lock_timeout = '3s'";
/// Longer than the timeout, so that the sessions that waited are done before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the migration is retried.
const RETRY_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("failed to migrate the schema")]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error(
        "failed to migrate the schema: another session has held a lock for {} s; find it in pg_stat_activity, \
         then run the migration again",
        RETRY_FOR.as_secs()
    )]
    Locked(#[source] Box<Self>),
    #[error(
        "the schema is not migrated: {missing} of {all} migrations are missing; run `brokkr-broker migrate`"
    )]
    NotMigrated { missing: usize, all: usize },
}

/// Brings the schema up to date. Repeating it does nothing; two at once run one after the other.
pub async fn schema_migrate(url: &str) -> Result<(), SchemaError> {
    schema_migrate_with(url, &ServingRole::default()).await
}

/// Brings the schema up to date, and grants the serving role its privileges.
pub async fn schema_migrate_with(url: &str, serving: &ServingRole) -> Result<(), SchemaError> {
    schema_run(url, &MIGRATOR, serving).await
}

/// Runs these migrations.
pub async fn schema_run(url: &str, migrator: &Migrator, serving: &ServingRole) -> Result<(), SchemaError> {
    let until = tokio::time::Instant::now() + RETRY_FOR;
    let mut again = false;
    loop {
        match attempt(url, migrator, serving, again).await {
            Err(error) if error.waits_for_a_lock() => {
                if tokio::time::Instant::now() >= until {
                    return Err(SchemaError::Locked(Box::new(error)));
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to migrate: another session holds a lock; retrying"
                );
                tokio::time::sleep(PAUSE).await;
                again = true;
            }
            done => return done,
        }
    }
}

/// Runs the migrations on a separate connection, so that its locks are released when the connection ends.
async fn attempt(
    url: &str,
    migrator: &Migrator,
    serving: &ServingRole,
    again: bool,
) -> Result<(), SchemaError> {
    let options = connect_options(url)?.application_name("brokkr-broker migrate");
    let mut conn = PgConnection::connect_with(&options).await.doing("connect to the database")?;
    let done = async {
        set(&mut conn, LOCK_TIMEOUT).await?;
        conn.lock().await?;
        if again {
            interrupt_autovacuums(&mut conn).await?;
        }
        for migration in migrator.iter() {
            if migration.no_tx {
                set(&mut conn, CONCURRENT_LOCK_TIMEOUT).await?;
                drop_invalid_indexes(&mut conn).await?;
            }
            migrator.run_to(migration.version, &mut conn).await?;
            set(&mut conn, LOCK_TIMEOUT).await?;
        }
        Ok(privileges_grant_on_conn(&mut conn, serving).await?)
    }
    .await;
    conn.close().await.doing("close the connection")?;
    done
}

async fn set(conn: &mut PgConnection, timeout: &'static str) -> Result<()> {
    sqlx::raw_sql(timeout).execute(conn).await.doing("limit the time to wait for locks").map(drop)
}

/// Waits for each table that an autovacuum works on, so that PostgreSQL interrupts it. Neither readers nor writers wait for the
/// lock that this takes.
async fn interrupt_autovacuums(conn: &mut PgConnection) -> Result<()> {
    let action = "interrupt autovacuums";
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT c.oid::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
         WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid() AND c.relkind = 'r'
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND c.relnamespace = current_schema()::regnamespace AND pg_has_role(c.relowner, 'USAGE')",
    )
    .all(&mut *conn, action)
    .await?;
    set(conn, AUTOVACUUM_LOCK_TIMEOUT).await?;
    for table in tables {
        let lock = format!("LOCK TABLE ONLY {table} IN SHARE UPDATE EXCLUSIVE MODE");
        let mut transaction = conn.begin().await.doing(action)?;
        // A vacuum that someone started by hand is not interrupted, and other tables may still be free.
        let _ = sqlx::query(AssertSqlSafe(lock)).execute(&mut *transaction).await;
        transaction.rollback().await.doing(action)?;
    }
    set(conn, LOCK_TIMEOUT).await
}

/// Drops what an interrupted `CREATE INDEX CONCURRENTLY` has left, so that it is created again.
async fn drop_invalid_indexes(conn: &mut PgConnection) -> Result<()> {
    let action = "drop invalid indexes";
    let indexes: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE NOT i.indisvalid AND c.relkind = 'i' AND c.relnamespace = current_schema()::regnamespace
           AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = c.oid)",
    )
    .all(&mut *conn, action)
    .await?;
    for index in indexes {
        let drop = format!("DROP INDEX CONCURRENTLY {index}");
        sqlx::query(AssertSqlSafe(drop)).run(&mut *conn, action).await?;
    }
    Ok(())
}

impl SchemaError {
    /// Returns whether a lock was not acquired in time, or a deadlock occurred.
    fn waits_for_a_lock(&self) -> bool {
        let cause = match self {
            Self::Migrate(MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) => cause,
            Self::Store(error) | Self::Grant(GrantError::Store(error)) => &error.source,
            _ => return false,
        };
        let code = cause.as_database_error().and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| ["55P03", "40P01"].contains(&code.as_ref()))
    }
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

//! Migrations: compiled in, run by a subcommand under PostgreSQL's advisory lock, never at start.

use sqlx::migrate::Migrator;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Doing as _, StoreError, connect_options};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot migrate the schema")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error(
        "the schema is not migrated: {missing} of {all} migrations are missing; run `brokkr-broker migrate`"
    )]
    NotMigrated { missing: usize, all: usize },
}

/// Brings the schema up to date. Running it again does nothing; two at once run one after the other.
pub async fn schema_migrate(url: &str) -> Result<(), SchemaError> {
    let options = connect_options(url)?;
    let mut connection = PgConnection::connect_with(&options).await.doing("connect to the database")?;
    MIGRATOR.run(&mut connection).await?;
    connection.close().await.doing("close the connection")?;
    Ok(())
}

/// Refuses a database that lacks a migration. One that has more is fine: the newer broker comes after.
pub async fn schema_check(pool: &PgPool) -> Result<(), SchemaError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await
        .doing("look for the migrations")?;
    let done: Vec<i64> = if exists {
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
            .fetch_all(pool)
            .await
            .doing("read the migrations")?
    } else {
        Vec::new()
    };
    let missing = MIGRATOR.iter().filter(|migration| !done.contains(&migration.version)).count();
    if missing > 0 {
        return Err(SchemaError::NotMigrated { missing, all: MIGRATOR.iter().count() });
    }
    Ok(())
}

//! A real PostgreSQL: the server of this machine's packages, with a data folder and a port of its own.
//!
//! One server is shared by all tests of a run ([`Postgres::shared`]); every test gets a database of its own
//! ([`Postgres::database`]). A test that kills or restarts the server starts one for itself
//! ([`Postgres::start`]).

mod database;
mod server;

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

pub use database::Database;
pub use server::{Backup, Durability, Server};

use crate::shared;

/// The port of a server, in a form that can be passed to other processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    pub port: u16,
}

impl Facts {
    /// The address of a database on this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// A PostgreSQL server for tests: a private one, or the one of the whole run.
#[derive(Debug)]
pub struct Postgres {
    facts: Facts,
    server: Option<Server>,
}

impl Postgres {
    /// The server that all tests of this run share.
    pub async fn shared() -> Result<Arc<Self>> {
        shared::postgres().await
    }

    /// Starts a private server without fsync, which is safe for everything but power failures.
    pub async fn start() -> Result<Self> {
        Self::start_with(Durability::None).await
    }

    pub async fn start_with(durability: Durability) -> Result<Self> {
        Self::start_with_settings(durability, &[]).await
    }

    /// Starts a private server with further settings, such as `max_wal_size=4GB`.
    pub async fn start_with_settings(durability: Durability, settings: &[&str]) -> Result<Self> {
        let server = Server::start(durability, settings).await?;
        Ok(Self { facts: server.facts(), server: Some(server) })
    }

    pub(crate) fn found(facts: Facts) -> Self {
        Self { facts, server: None }
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the process, for tests that kill it. Only a private server has one.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The address of a database on this server.
    pub fn url(&self, database: &str) -> String {
        self.facts.url(database)
    }

    /// A new, empty database, dropped when the test ends.
    pub async fn database(&self) -> Result<Database> {
        Database::create(&self.facts, "template0").await
    }

    /// A copy of a template database. The first caller in the run prepares the template under this name;
    /// the others wait for it and copy.
    pub async fn database_like(
        &self,
        template: &str,
        prepare: impl AsyncFnOnce(&str) -> Result<()>,
    ) -> Result<Database> {
        let mut connection = self.connect("postgres").await?;
        sqlx::query("SELECT pg_advisory_lock(hashtext($1))").bind(template).execute(&mut connection).await?;
        // An unfinished template has another name, so that a preparation that failed is not found later.
        let unfinished = format!("{template}_unfinished");
        let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(template)
            .fetch_one(&mut connection)
            .await?;
        if !exists {
            execute(&mut connection, format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)")).await?;
            execute(&mut connection, format!("CREATE DATABASE {unfinished} TEMPLATE template0")).await?;
            prepare(&self.url(&unfinished)).await.with_context(|| format!("cannot prepare {template}"))?;
            execute(&mut connection, format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await?;
        }
        // Closing the connection releases the lock.
        connection.close().await?;
        Database::create(&self.facts, template).await
    }

    async fn connect(&self, database: &str) -> Result<PgConnection> {
        let url = self.url(database);
        PgConnection::connect(&url).await.with_context(|| format!("cannot connect to {url}"))
    }
}

/// Runs a statement with names that the test kit made.
async fn execute(connection: &mut PgConnection, statement: String) -> Result<()> {
    sqlx::query(AssertSqlSafe(statement.clone()))
        .execute(connection)
        .await
        .with_context(|| format!("cannot {statement}"))?;
    Ok(())
}

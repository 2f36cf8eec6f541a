//! A database that belongs to one test.

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{Facts, Postgres, execute};
use crate::names::unique;

/// A private database; dropped, with its open connections, when the test ends.
#[derive(Debug)]
pub struct Database {
    facts: Facts,
    name: String,
}

impl Database {
    pub(super) async fn create(facts: &Facts, template: &str) -> Result<Self> {
        let mut connection = PgConnection::connect(&facts.url("postgres"))
            .await
            .context("cannot connect to the test's PostgreSQL")?;
        let name = unique("test").replace('-', "_");
        execute(&mut connection, format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        connection.close().await?;
        Ok(Self { facts: facts.clone(), name })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        self.facts.url(&self.name)
    }

    /// Returns the same database on a server that was a standby.
    #[must_use]
    pub fn at(&self, server: &Postgres) -> Self {
        Self { facts: server.facts().clone(), name: self.name.clone() }
    }

    /// Returns the address for a role that is not the superuser. It has to exist.
    pub fn url_as(&self, role: &str) -> String {
        self.facts.url_as(role, &self.name)
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.url()).await.with_context(|| format!("cannot connect to {}", self.url()))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (url, name) = (self.facts.url("postgres"), self.name.clone());
        // On a thread with its own runtime: `block_on` panics on a thread of the test's runtime, which may
        // also be shutting down. A failure does no harm: when the server is gone, the database is gone too.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                    .execute(&mut connection)
                    .await?;
                anyhow::Ok(())
            })
        });
        let _ = dropping.join();
    }
}

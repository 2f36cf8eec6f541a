//! The error of a failed statement, and the API error it becomes.

use std::sync::Arc;

use brokkr_api::ErrorCode;

use super::failures;
use crate::error::ApiError;

/// A statement that failed, with the action it was for.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action}")]
pub struct StoreError {
    pub action: &'static str,
    #[source]
    pub source: sqlx::Error,
}

impl StoreError {
    /// Returns whether the database, rather than the statement, is the problem: the same statement may
    /// succeed later.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match &self.source {
            // A load balancer without a server behind it accepts a connection and closes it, which is a protocol
            // error.
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                // The classes: connection trouble, resources, operator intervention, conflicts. The codes:
                // lock timeout, read-only database, idle timeout.
                ["08", "53", "57", "40"].iter().any(|class| code.starts_with(class))
                    || ["55P03", "25006", "25P03"].contains(&code.as_ref())
            }),
            _ => false,
        }
    }

    /// Returns whether the server refused the statement, and would accept others on the same connection.
    #[must_use]
    pub fn is_of_statement(&self) -> bool {
        let code = self.source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        // Not: connection trouble, shutdown, read-only database.
        code.is_some_and(|code| !["08", "57P", "25006"].iter().any(|class| code.starts_with(class)))
    }

    /// Returns whether only another configuration can help: the server offers no TLS although it is demanded.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        matches!(&self.source, sqlx::Error::Tls(_))
    }

    /// Returns whether other rows still refer to the row that was to be deleted.
    #[must_use]
    pub fn is_referred_to(&self) -> bool {
        self.source.as_database_error().is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
    }

    /// Returns whether the database accepts no writes at all: it is read-only, or its disk is full.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let code = self.source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| ["25006", "53100"].contains(&code.as_ref()))
    }

    /// Returns whether a text contains a NUL, which PostgreSQL cannot store.
    #[must_use]
    pub fn is_unwritable(&self) -> bool {
        let code = self.source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| code == "22021")
    }

    /// Returns whether a unique index refused the row.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.source.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Names the action of a statement that failed.
pub trait Doing<T> {
    fn doing(self, action: &'static str) -> Result<T>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, action: &'static str) -> Result<T> {
        self.map_err(|source| {
            failures::count(action);
            StoreError { action, source }
        })
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Arc::new(error).into()
    }
}

/// Converts a failure that several requests share.
impl From<Arc<StoreError>> for ApiError {
    fn from(error: Arc<StoreError>) -> Self {
        let api_error = if error.is_unavailable() {
            Self::new(ErrorCode::BRK3003, "the database does not respond or is overloaded").retry_after(1)
        } else if error.is_unwritable() {
            Self::invalid_request("a text contains a NUL character")
        } else {
            Self::new(ErrorCode::BRK9001, "the broker failed to process the request")
        };
        api_error.because_shared(error)
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection as _;
    use sqlx::postgres::PgConnection;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_load_balancer_without_a_server_behind_it_means_unavailable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://user@{}/db", listener.local_addr().unwrap());
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let connected = PgConnection::connect(&url).await.map(|_| ()).doing("connect");
        let error = connected.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
    }
}

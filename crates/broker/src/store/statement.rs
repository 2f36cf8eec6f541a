//! Statements that name the action they are for, in case they fail.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, PgExecutor, Postgres};

use super::{Doing as _, Result};

/// A statement without rows.
pub trait Run: Sized + Send {
    /// Returns the number of affected rows.
    fn affected<'e>(
        self,
        executor: impl PgExecutor<'e>,
        action: &'static str,
    ) -> impl Future<Output = Result<u64>> + Send;

    fn run<'e>(
        self,
        executor: impl PgExecutor<'e>,
        action: &'static str,
    ) -> impl Future<Output = Result<()>> + Send {
        async move { self.affected(executor, action).await.map(|_| ()) }
    }
}

impl Run for Query<'_, Postgres, PgArguments> {
    async fn affected<'e>(self, executor: impl PgExecutor<'e>, action: &'static str) -> Result<u64> {
        self.execute(executor).await.map(|done| done.rows_affected()).doing(action)
    }
}

/// A statement that returns rows.
pub trait Fetch<T>: Sized + Send {
    fn all<'e>(
        self,
        executor: impl PgExecutor<'e>,
        action: &'static str,
    ) -> impl Future<Output = Result<Vec<T>>> + Send;

    fn optional<'e>(
        self,
        executor: impl PgExecutor<'e>,
        action: &'static str,
    ) -> impl Future<Output = Result<Option<T>>> + Send;

    fn one<'e>(
        self,
        executor: impl PgExecutor<'e>,
        action: &'static str,
    ) -> impl Future<Output = Result<T>> + Send;
}

macro_rules! fetch {
    ($query:ident, $row:ty) => {
        impl<T> Fetch<T> for $query<'_, Postgres, T, PgArguments>
        where
            T: Send + Unpin,
            $row: Send + Unpin + for<'r> FromRow<'r, PgRow>,
        {
            async fn all<'e>(self, executor: impl PgExecutor<'e>, action: &'static str) -> Result<Vec<T>> {
                self.fetch_all(executor).await.doing(action)
            }

            async fn optional<'e>(
                self,
                executor: impl PgExecutor<'e>,
                action: &'static str,
            ) -> Result<Option<T>> {
                self.fetch_optional(executor).await.doing(action)
            }

            async fn one<'e>(self, executor: impl PgExecutor<'e>, action: &'static str) -> Result<T> {
                self.fetch_one(executor).await.doing(action)
            }
        }
    };
}

fetch!(QueryAs, T);
fetch!(QueryScalar, (T,));

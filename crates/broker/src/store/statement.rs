//! Statements that name the action they are for, in case they fail.

use std::str::FromStr;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Map, Query, QueryAs, QueryScalar};
use sqlx::types::Json;
use sqlx::{Decode, FromRow, PgExecutor, Postgres, Row as _, Type};

use super::{Doing as _, Result, known};

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
    (<$($parameter:ident),+> $query:ty where $($bound:tt)+) => {
        impl<$($parameter),+> Fetch<T> for $query
        where
            T: Send + Unpin,
            $($bound)+
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

fetch!(<T> QueryAs<'_, Postgres, T, PgArguments> where T: for<'r> FromRow<'r, PgRow>);
fetch!(<T> QueryScalar<'_, Postgres, T, PgArguments> where (T,): for<'r> FromRow<'r, PgRow>);
fetch!(<T, F> Map<'_, Postgres, F, PgArguments> where F: FnMut(PgRow) -> Result<T, sqlx::Error> + Send);

/// Reads the columns of a row by name.
pub trait Columns {
    fn field<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &str) -> Result<T, sqlx::Error>;

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, sqlx::Error> {
        self.field(name).map(|Json(value)| value)
    }

    fn known<T: FromStr>(&self, name: &str) -> Result<T, sqlx::Error> {
        known(self.field(name)?)
    }

    fn time(&self, name: &str) -> Result<Timestamp, sqlx::Error> {
        self.field(name).map(jiff_sqlx::Timestamp::to_jiff)
    }

    fn time_opt(&self, name: &str) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.field::<Option<jiff_sqlx::Timestamp>>(name)?.map(jiff_sqlx::Timestamp::to_jiff))
    }
}

impl Columns for PgRow {
    fn field<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &str) -> Result<T, sqlx::Error> {
        self.try_get(name)
    }
}

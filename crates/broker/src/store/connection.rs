//! Connections to PostgreSQL: encryption, the settings of a session, and servers that must not be used.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection as _, PgConnection, PgPool};
use url::Url;

use super::{Doing as _, Result};

/// The name of the broker's sessions in `pg_stat_activity`.
pub const APPLICATION: &str = "brokkr-broker";

/// Timeouts of the broker's sessions: an open write transaction stalls every replica's outbox tail, so nothing may stay
/// open for long. Not sent as options of the connection, which poolers refuse or lose.
const SESSION: &str = "SET statement_timeout = '30s'; SET lock_timeout = '5s'; \
                       SET idle_in_transaction_session_timeout = '10s'; SELECT pg_is_in_recovery()";

/// How long a connection that returns to the pool may take to respond to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a pooler may take to give a second client a server.
const POOLER_TIMEOUT: Duration = Duration::from_secs(5);

/// Parses the URL of the database. Connections to other hosts are encrypted, unless the URL says something else.
pub fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url).doing("read the address of the database")?;
    // PgBouncer refuses this option, and the default of PostgreSQL 12 and newer is exact, too.
    let options = options.extra_float_digits(None);
    let chosen = std::env::var_os("PGSSLMODE").is_some() || names_ssl_mode(url);
    let encrypted = !chosen && !is_local(&options);
    Ok(if encrypted { options.ssl_mode(PgSslMode::Require) } else { options })
}

fn names_ssl_mode(url: &str) -> bool {
    Url::parse(url)
        .is_ok_and(|url| url.query_pairs().any(|(key, _)| ["sslmode", "ssl-mode"].contains(&key.as_ref())))
}

/// Returns whether the server is on this machine.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host().trim_start_matches('[').trim_end_matches(']');
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Connects a pool to the database.
pub async fn connect(url: &str, connections: u32) -> Result<PgPool> {
    let options = connect_options(url)?.application_name(APPLICATION);
    PgPoolOptions::new()
        .max_connections(connections)
        // Load shedding: a request that gets no connection within this time is refused and may be retried.
        .acquire_timeout(Duration::from_secs(3))
        .idle_timeout(Duration::from_secs(300))
        .after_connect(|connection, _| Box::pin(begin_session(connection)))
        // A cancelled request may leave a connection to a server that no longer responds. Without a timeout,
        // the ping would occupy a place in the pool until TCP gives up.
        .after_release(|connection, _| {
            Box::pin(async move {
                match tokio::time::timeout(PING_TIMEOUT, connection.ping()).await {
                    Ok(answered) => answered.map(|()| true),
                    Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
                }
            })
        })
        .connect_with(options)
        .await
        .doing("connect to the database")
}

/// Sets the timeouts of a session, and refuses a standby: it has an older state, which would count as current. A primary
/// that becomes a standby ends its connections, so a check at the beginning is enough.
async fn begin_session(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let row = sqlx::raw_sql(SESSION).fetch_one(connection).await?;
    if sqlx::Row::try_get(&row, 0)? {
        let standby = "the server is a standby; use an address that always leads to the primary";
        return Err(sqlx::Error::Protocol(standby.to_owned()));
    }
    Ok(())
}

/// Returns whether a pooler gives each transaction another session of the server ("transaction mode"). Then settings of a
/// session reach others, and prepared statements are lost. Fails if the server cannot be used now, and says why.
///
/// Two clients never share a session of the server, and a session never changes: where that is not true, there is such a
/// pooler.
pub async fn pools_transactions(url: &str) -> Result<bool> {
    let options = connect_options(url)?.application_name(APPLICATION);
    let action = "connect to the database";
    let mut one = PgConnection::connect_with(&options).await.doing(action)?;
    let mut other = PgConnection::connect_with(&options).await.doing(action)?;
    let mut pools = false;
    // More than once, because a pooler may have several free sessions and choose in any order.
    for _ in 0..3 {
        let before = session(&mut one).await?;
        sqlx::raw_sql("BEGIN").execute(&mut other).await.doing(action)?;
        let elsewhere = session(&mut other).await?;
        // A pooler with a single session cannot answer while the other client has a transaction.
        let after = tokio::time::timeout(POOLER_TIMEOUT, session(&mut one)).await;
        pools |= elsewhere == before || after.map_or(Ok(true), |after| after.map(|after| after != before))?;
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.doing(action)?;
        if pools {
            return Ok(true);
        }
    }
    begin_session(&mut other).await.doing(action)?;
    one.close().await.doing("close the connection")?;
    other.close().await.doing("close the connection")?;
    Ok(false)
}

/// Returns the process that serves a connection. Without a prepared statement, which a pooler might lose.
async fn session(connection: &mut PgConnection) -> Result<i32> {
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await;
    row.and_then(|row| sqlx::Row::try_get(&row, 0)).doing("read the id of the session")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_other_hosts_are_encrypted_unless_the_url_says_otherwise() {
        let mode = |url| format!("{:?}", connect_options(url).unwrap().get_ssl_mode());
        for (url, expected) in [
            ("postgres://a:b@db.example/x", "Require"),
            ("postgres://a:b@10.0.0.7:6432/x?application_name=y", "Require"),
            ("postgres://a:b@[2001:db8::1]/x", "Require"),
            ("postgres://a:b@db.example/x?sslmode=disable", "Disable"),
            ("postgres://a:b@db.example/x?sslmode=prefer", "Prefer"),
            ("postgres://a:b@db.example/x?ssl-mode=verify-full", "VerifyFull"),
            ("postgres://a:b@localhost/x", "Prefer"),
            ("postgres://a:b@127.0.0.1:5432/x", "Prefer"),
            ("postgres://a:b@[::1]/x", "Prefer"),
            ("postgres://a@%2Fvar%2Frun%2Fpostgresql/x", "Prefer"),
            ("postgres:///x?host=/var/run/postgresql", "Prefer"),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
    }
}

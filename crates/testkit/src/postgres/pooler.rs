//! PgBouncer in front of a server.

use std::os::unix::fs::chown;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::Postgres;
use super::server::unprivileged_user;
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(30);

/// For how long a client keeps a session of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    Session,
    Transaction,
}

/// A running PgBouncer.
#[derive(Debug)]
pub struct Pooler {
    // Dropped first.
    _process: Process,
    port: Port,
    _scratch: Scratch,
}

impl Pooler {
    /// Starts a pooler with at most this many sessions per database.
    pub async fn start(postgres: &Postgres, mode: PoolMode, sessions: u32) -> Result<Self> {
        let scratch = Scratch::new("pgbouncer")?;
        let port = Port::free()?;
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let (server, own) = (postgres.facts().port, port.number());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {own}\nauth_type = any\nunix_socket_dir =\npool_mode = {mode}\nmax_client_conn = 500\n\
             default_pool_size = {sessions}\n"
        );
        let file = scratch.write("pgbouncer.ini", settings)?;
        let user = unprivileged_user()?;
        if let Some((user, group)) = user {
            chown(scratch.path(), Some(user), Some(group))?;
        }
        let launch =
            Launch::new("pgbouncer", "/usr/sbin/pgbouncer").arg(&file).folder(scratch.path()).user(user);
        let process = Process::start(launch, scratch.path()).context("install the package pgbouncer")?;
        let pooler = Self { _process: process, port, _scratch: scratch };
        let options: PgConnectOptions = pooler.url("postgres").parse()?;
        let options = options.disable_statement_logging().extra_float_digits(None);
        let answers = async || PgConnection::connect_with(&options).await.is_ok();
        pooler._process.ready_when(START_DEADLINE, answers).await?;
        Ok(pooler)
    }

    /// Returns the address of a database behind the pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port.number())
    }
}

//! The broker as a process: one replica, on a port of its own, with TLS.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::port::Port;
use crate::process::{Launch, Process, ShowLog, run};
use crate::programs::program;
use crate::scratch::Scratch;
use crate::tls::Authority;

const START_DEADLINE: Duration = Duration::from_secs(30);

/// Brings a database to the schema of this build.
pub async fn migrate(database_url: &str) -> Result<()> {
    let launch = Launch::new("brokkr-broker", program("brokkr-broker")?).args([
        "migrate",
        "--database-url",
        database_url,
    ]);
    run(launch, START_DEADLINE).await?.ok()?;
    Ok(())
}

/// Migrates the database of a test fleet, whose rollouts do not wait: tests have waves of their own where these matter.
pub async fn prepare(database_url: &str) -> Result<()> {
    migrate(database_url).await?;
    policy_set(database_url, &json!({ "soak_seconds": 0 })).await
}

/// Sets the rollout policy of an installation.
pub async fn policy_set(database_url: &str, policy: &Value) -> Result<()> {
    let mut connection = sqlx::PgConnection::connect(database_url).await?;
    let delete = "DELETE FROM rollout_policies WHERE project IS NULL";
    sqlx::query(delete).execute(&mut connection).await?;
    let insert = "INSERT INTO rollout_policies (policy, changed_by) VALUES ($1, 'test')";
    sqlx::query(insert).bind(policy).execute(&mut connection).await?;
    Ok(())
}

/// Creates the first admin token of an installation and returns it.
pub async fn bootstrap(database_url: &str) -> Result<String> {
    let launch = Launch::new("brokkr-broker", program("brokkr-broker")?).args([
        "bootstrap",
        "--database-url",
        database_url,
    ]);
    let output = run(launch, START_DEADLINE).await?.ok()?;
    let token = output.stdout.trim();
    if !token.starts_with("brk_") || token.contains(char::is_whitespace) {
        bail!("bootstrap did not print exactly one token:\n{}", output.stdout);
    }
    Ok(token.to_owned())
}

/// One broker replica.
#[derive(Debug)]
pub struct Broker {
    process: Process,
    http: reqwest::Client,
    port: Port,
    authority_file: PathBuf,
    _scratch: Scratch,
}

/// The process, which can be killed, stopped, paused and inspected.
impl Deref for Broker {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Broker {
    /// Starts a replica on a migrated database and waits until it is ready. `more` are further arguments.
    pub async fn start(
        database_url: &str,
        authority: &Authority,
        show_log: ShowLog,
        more: &[&str],
    ) -> Result<Self> {
        let scratch = Scratch::new("broker")?;
        let port = Port::free()?;
        let identity = authority.server(&scratch, "brokkr-broker", &[])?;
        let authority_file = scratch.write("ca.crt", authority.pem())?;
        let launch = Launch::new("brokkr-broker", program("brokkr-broker")?)
            .args(["serve", "--database-url", database_url, "--listen", &port.address(), "--tls-cert"])
            .arg(&identity.certificate)
            .arg("--tls-key")
            .arg(&identity.key)
            .args(more)
            .show_log(show_log);
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(authority.pem().as_bytes())?])
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()?;
        let process = Process::start(launch, scratch.path())?;
        let broker = Self { process, http, port, authority_file, _scratch: scratch };
        broker.ready().await?;
        Ok(broker)
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://{}", self.port.address())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the PEM file with the certificate authority of this broker.
    pub fn authority_file(&self) -> &Path {
        &self.authority_file
    }

    /// Returns an HTTP client that trusts this broker.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Starts it again after it was killed or stopped: same port, same database.
    pub async fn start_again(&self) -> Result<()> {
        self.process.start_again()?;
        self.ready().await
    }

    /// Kills it, and starts it again.
    pub async fn restart(&self) -> Result<()> {
        self.kill9();
        self.start_again().await
    }

    /// Kills it, and starts it again with other arguments or another environment.
    pub async fn relaunch(&mut self, change: impl FnOnce(Launch) -> Launch) -> Result<()> {
        self.kill9();
        self.process.relaunch_with(change);
        self.start_again().await
    }

    async fn ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.url());
        let is_ready = async || {
            let answer = self.http.get(&url).timeout(Duration::from_secs(2)).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        self.process.ready_when(START_DEADLINE, is_ready).await.context("the broker did not become ready")
    }
}

//! A replica as a process: its memory and its metrics can be read from outside.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::{Database, Launch, Port, Process, Scratch};
use reqwest::Client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(60);

pub struct Replica {
    pub address: SocketAddr,
    process: Process,
    admin: Port,
    http: Client,
    _port: Port,
    _scratch: Scratch,
}

impl Replica {
    pub async fn start(database: &Database, secret_key: &str) -> Result<Self> {
        let (port, admin, scratch) = (Port::free()?, Port::free()?, Scratch::new("attempts")?);
        let launch = Launch::new("brokkr-broker", PROGRAM)
            .args(["serve", "--listen", &port.address(), "--database-url", &database.url()])
            .args(["--admin-listen", &admin.address(), "--drain-grace", "0s", "--drain", "2s"])
            .args(["--webhook-networks", "127.0.0.0/8", "--webhook-any-port"])
            .env("BROKKR_SECRET_KEY", secret_key);
        let process = Process::start(launch, scratch.path())?;
        let http = Client::builder().no_proxy().build()?;
        let url = format!("http://{}/readyz", port.address());
        let ready = async || http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success());
        process.ready_when(SOON, ready).await?;
        Ok(Self { address: port.address().parse()?, process, admin, http, _port: port, _scratch: scratch })
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn resident(&self) -> Result<u64> {
        let pid = self.process.pid().context("the replica is not running")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// Returns the number of responses of each route, method and class of status.
    pub async fn responses(&self) -> Result<HashMap<String, u64>> {
        let url = format!("http://{}/metrics", self.admin.address());
        let text = self.http.get(url).send().await?.error_for_status()?.text().await?;
        let counts = text.lines().filter_map(|line| {
            let (labels, count) = line.strip_prefix("brokkr_requests_total{")?.rsplit_once("} ")?;
            Some((labels.to_owned(), count.parse().ok()?))
        });
        Ok(counts.collect())
    }

    /// Ends the process; it writes what it has not audited yet.
    pub async fn stop(&self) -> Result<()> {
        let status = self.process.stop().await?;
        anyhow::ensure!(status.success(), "{status}\n{}", self.process.log_tail(40));
        Ok(())
    }
}

//! A complete Brokkr for one test: a broker on its own database, a logged-in command line, and agents.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::agent::{Agent, AgentOptions};
use crate::broker::{self, Broker};
use crate::cli::Cli;
use crate::cluster::Cluster;
use crate::eventually::{Attempt, eventually};
use crate::postgres::{Database, Postgres};
use crate::process::{Output, ShowLog};
use crate::programs::program;
use crate::tls::Authority;

/// A start through a lagging API server takes a minute on a busy machine.
const JOIN_DEADLINE: Duration = Duration::from_secs(180);

/// A broker with its database, and a logged-in command line.
#[derive(Debug)]
pub struct Fleet {
    // Dropped in this order: the broker before its database, the database before its server.
    pub broker: Broker,
    pub cli: Cli,
    admin_token: String,
    database: Database,
    authority: Authority,
    show_log: ShowLog,
    _postgres: Arc<Postgres>,
}

impl Fleet {
    /// Starts a broker with TLS on a new database of the run's PostgreSQL, and logs its administrator in.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a fleet with further arguments of `brokkr-broker serve`.
    pub async fn start_with(arguments: &[&str]) -> Result<Self> {
        Self::start_on_with(Postgres::shared().await?, ShowLog::Always, arguments).await
    }

    /// Starts a fleet on a given PostgreSQL, for tests that kill it.
    pub async fn start_on(postgres: Arc<Postgres>, show_log: ShowLog) -> Result<Self> {
        Self::start_on_with(postgres, show_log, &[]).await
    }

    /// Starts a fleet on a given PostgreSQL with further arguments of `brokkr-broker serve`.
    pub async fn start_on_with(
        postgres: Arc<Postgres>,
        show_log: ShowLog,
        arguments: &[&str],
    ) -> Result<Self> {
        let database = postgres.database_like(&template()?, async |url| broker::prepare(url).await).await?;
        let admin_token = broker::bootstrap(&database.url()).await?;
        let authority = Authority::for_a_month("brokkr-test-broker")?;
        let broker = Broker::start(&database.url(), &authority, show_log, arguments).await?;
        let cli = Cli::new()?;
        cli.login(&broker.url(), &admin_token, broker.authority_file()).await?;
        Ok(Self { broker, cli, admin_token, database, authority, show_log, _postgres: postgres })
    }

    /// Starts another broker replica on the same database.
    pub async fn replica(&self) -> Result<Broker> {
        self.replica_with(&[]).await
    }

    /// Starts another broker replica with further arguments of `brokkr-broker serve`.
    pub async fn replica_with(&self, arguments: &[&str]) -> Result<Broker> {
        Broker::start(&self.database.url(), &self.authority, self.show_log, arguments).await
    }

    /// Returns the broker's database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Returns the authority that signs the certificates of this fleet's brokers and of proxies in front of them.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    // ── agents ──

    /// Installs an agent into the cluster, lets it join under this name and these labels, and waits until
    /// the broker has received the agent's first poll.
    pub async fn join(&self, name: &str, labels: &[(&str, &str)], cluster: &Cluster) -> Result<Agent> {
        self.join_with(name, labels, cluster, &AgentOptions::default()).await
    }

    pub async fn join_with(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        cluster: &Cluster,
        options: &AgentOptions,
    ) -> Result<Agent> {
        let agent = self.launch(name, labels, cluster, options).await?;
        self.active(name).await.with_context(|| {
            format!("the agent {name} did not join; its log:\n{}", agent.process().log_tail(40))
        })?;
        Ok(agent)
    }

    /// Starts an agent with a fresh join token and does not wait for it to join.
    pub async fn launch(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        cluster: &Cluster,
        options: &AgentOptions,
    ) -> Result<Agent> {
        let token = self.join_token(name, labels).await?;
        let (url, authority) = (self.broker.url(), self.broker.authority_file());
        Agent::start_new(name, cluster, &url, authority, &token, options, self.show_log).await
    }

    /// Creates a token with which one agent can join.
    pub async fn join_token(&self, name: &str, labels: &[(&str, &str)]) -> Result<String> {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut arguments = vec!["agent", "join-token", name];
        for label in &labels {
            arguments.extend(["--label", label]);
        }
        Ok(self.brokkr(arguments).await?.ok()?.stdout.trim().to_owned())
    }

    /// Waits until the agent is ACTIVE and has polled.
    pub async fn active(&self, name: &str) -> Result<Value> {
        eventually(JOIN_DEADLINE, &format!("the agent {name} to be ACTIVE and polling"), async || match self
            .agent(name)
            .await
        {
            Ok(Some(agent)) if agent["status"] == "ACTIVE" && !agent["last_seen_at"].is_null() => {
                Attempt::Done(agent)
            }
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Returns the agent as the broker's API shows it.
    pub async fn agent(&self, name: &str) -> Result<Option<Value>> {
        let page = self.get("/api/v1/agents?limit=500").await?;
        let agents = page["items"].as_array().context("the list of agents has no items")?;
        Ok(agents.iter().find(|agent| agent["name"] == name).cloned())
    }

    // ── the command line ──

    /// Runs `brokkr` as the administrator. This call succeeds even if the command fails.
    pub async fn brokkr(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        self.cli.run(arguments).await
    }

    /// Runs `brokkr … -o json`, which must succeed, and parses its output.
    pub async fn brokkr_json(&self, arguments: &[&str]) -> Result<Value> {
        self.brokkr(arguments.iter().chain(&["-o", "json"])).await?.ok()?.json()
    }

    /// Delivers manifests to the agents that the selector matches, and waits until they are healthy.
    pub async fn apply(&self, stack: &str, selector: &str, yaml: &str) -> Result<Output> {
        let file = self.cli.file(&format!("{stack}.yaml"), yaml)?;
        self.brokkr(apply_arguments(&file, stack, selector).into_iter().chain(["--wait=rollout".as_ref()]))
            .await?
            .ok()
    }

    /// From now on, every agent gets a new version at once.
    pub async fn roll_out_at_once(&self) -> Result<()> {
        broker::policy_set(&self.database.url(), &serde_json::json!({ "staged": false })).await
    }

    /// Delivers manifests and waits at most this long, such as `8s`. The command may fail.
    pub async fn try_apply(&self, stack: &str, selector: &str, yaml: &str, timeout: &str) -> Result<Output> {
        let file = self.cli.file(&format!("{stack}.yaml"), yaml)?;
        let wait = ["--wait=rollout", "--timeout", timeout].map(AsRef::as_ref);
        self.brokkr(apply_arguments(&file, stack, selector).into_iter().chain(wait)).await
    }

    /// Delivers manifests and does not wait.
    pub async fn submit(&self, stack: &str, selector: &str, yaml: &str) -> Result<Output> {
        let file = self.cli.file(&format!("{stack}.yaml"), yaml)?;
        self.brokkr(apply_arguments(&file, stack, selector)).await?.ok()
    }

    /// Delivers manifests to every agent at once, without waves, and does not wait.
    pub async fn submit_at_once(&self, stack: &str, selector: &str, yaml: &str) -> Result<Output> {
        let file = self.cli.file(&format!("{stack}.yaml"), yaml)?;
        let now = ["--now", "--reason", "test"].map(AsRef::as_ref);
        self.brokkr(apply_arguments(&file, stack, selector).into_iter().chain(now)).await?.ok()
    }

    /// Deletes a stack and waits until every agent has confirmed it.
    pub async fn delete(&self, stack: &str) -> Result<Output> {
        self.brokkr(["stack", "delete", stack, "--yes", "--wait"]).await?.ok()
    }

    pub async fn status(&self) -> Result<Value> {
        self.brokkr_json(&["status"]).await
    }

    pub async fn events(&self) -> Result<Value> {
        self.brokkr_json(&["events"]).await
    }

    // ── the API ──

    /// Builds a request to the broker's API as the administrator.
    pub fn request(&self, method: http::Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.broker.url());
        self.broker.http().request(method, url).bearer_auth(&self.admin_token)
    }

    /// Gets a document of the API, which must exist.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.request(http::Method::GET, path).send().await?;
        let (status, body) = (answer.status(), answer.text().await?);
        anyhow::ensure!(status.is_success(), "GET {path} returned {status}: {body}");
        Ok(serde_json::from_str(&body)?)
    }
}

fn apply_arguments<'a>(file: &'a Path, stack: &'a str, selector: &'a str) -> [&'a OsStr; 6] {
    ["apply".as_ref(), stack.as_ref(), "-f".as_ref(), file.as_ref(), "--to".as_ref(), selector.as_ref()]
}

/// Returns the name of the template database, which belongs to one build of the broker and its migrations.
fn template() -> Result<String> {
    let broker = fs::metadata(program("brokkr-broker")?)?;
    let built = broker.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
    Ok(format!("brokkr_{built:x}_{:x}", broker.len()))
}

//! An agent as a process, under its own service account in a cluster.

use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::audit::{Mark, Request};
use crate::cluster::Cluster;
use crate::names::unique;
use crate::process::{Launch, Process, ShowLog, run};
use crate::programs::program;
use crate::proxy::Route;
use crate::scratch::Scratch;

const INSTALL_DEADLINE: Duration = Duration::from_secs(60);
const JOIN_TOKEN: &str = "join-token";
/// The service account that the agent runs as, in its own namespace.
pub const ACCOUNT: &str = "brokkr-agent";

/// Options of an agent in a test.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The address of the broker; the fleet's own by default.
    pub broker_url: Option<String>,
    /// The address of the API server; the cluster's own by default.
    pub api_server: Option<Route>,
    /// The agent's namespace. Each agent of a cluster needs its own, so the default is unique.
    pub namespace: Option<String>,
    pub polling_interval: String,
    /// Further arguments of `brokkr-agent install`.
    pub install: Vec<String>,
    /// Further arguments of `brokkr-agent run`.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            broker_url: None,
            api_server: None,
            namespace: None,
            polling_interval: "1s".into(),
            install: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }
}

/// An agent in a cluster.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    name: String,
    namespace: String,
    audit: crate::AuditLog,
    /// The end of the log when the agent was started.
    started: Mark,
    scratch: Scratch,
}

/// The process, which can be killed, stopped, paused and inspected.
impl Deref for Agent {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Agent {
    /// Installs an agent into a cluster and starts it, without waiting until it has joined.
    pub(crate) async fn start_new(
        name: &str,
        cluster: &Cluster,
        broker_url: &str,
        authority_file: &Path,
        join_token: &str,
        options: &AgentOptions,
        show_log: ShowLog,
    ) -> Result<Self> {
        let namespace = options.namespace.clone().unwrap_or_else(|| unique(&format!("brokkr-{name}")));
        install(cluster, &namespace, &options.install).await?;
        let scratch = Scratch::new("agent")?;
        let token_file = scratch.write(JOIN_TOKEN, join_token)?;
        let launch = Launch::new(format!("brokkr-agent-{name}"), program("brokkr-agent")?)
            .args(["run", "--broker-url", options.broker_url.as_deref().unwrap_or(broker_url), "--ca-file"])
            .arg(authority_file)
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig_for_by(&namespace, ACCOUNT, options.api_server.as_ref()).await?)
            .args(["--namespace", &namespace, "--join-token-file"])
            .arg(token_file)
            .args(["--polling-interval", &options.polling_interval])
            .args(&options.arguments)
            // Simulated Pods never crash, so no test has to wait to see whether they do.
            .env("BROKKR_STABLE_AFTER", if cluster.facts().real_nodes { "10s" } else { "0s" })
            .envs(options.environment.clone())
            .show_log(show_log);
        let audit = cluster.audit();
        let started = audit.mark()?;
        let process = Process::start(launch, scratch.path())?;
        Ok(Self { process, name: name.to_owned(), namespace, audit, started, scratch })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the agent's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Returns its requests to the API server since the mark, or since its start if that is later.
    pub fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        self.audit.requests_by(&self.user(), since.max(self.started))
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Starts a second process with the same arguments, as a cloned pod would run: same account, same state, same key.
    pub fn twin(&self) -> Result<Twin> {
        let scratch = Scratch::new("agent-twin")?;
        let process = Process::start(self.process.launch(), scratch.path())?;
        Ok(Twin { process, _scratch: scratch })
    }

    /// Replaces the join token that it uses when it starts without an identity.
    pub fn give_join_token(&self, token: &str) -> Result<()> {
        self.scratch.write(JOIN_TOKEN, token).map(|_| ())
    }

    /// Starts it again after it was killed or stopped.
    pub fn start(&self) -> Result<()> {
        self.process.start_again()
    }

    /// Kills it, and starts it again.
    pub fn restart(&self) -> Result<()> {
        self.kill9();
        self.start()
    }
}

/// A second process that claims to be an agent that already runs.
#[derive(Debug)]
pub struct Twin {
    process: Process,
    _scratch: Scratch,
}

impl Deref for Twin {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// Installs what an administrator installs once per cluster: namespace, custom resource, service account, RBAC,
/// admission policy. Returns when the admission policy is in effect. The default profile is `platform`, because most tests
/// deliver cluster-scoped objects.
pub async fn install(
    cluster: &Cluster,
    namespace: &str,
    arguments: &[impl AsRef<std::ffi::OsStr>],
) -> Result<()> {
    let has_profile = arguments.iter().any(|argument| argument.as_ref() == "--profile");
    let profile: &[&str] = if has_profile { &[] } else { &["--profile", "platform"] };
    let launch = Launch::new("brokkr-agent", program("brokkr-agent")?)
        .args(["install", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .args(["--namespace", namespace])
        .args(profile)
        .args(arguments);
    run(launch, INSTALL_DEADLINE).await?.ok()?;
    Ok(())
}

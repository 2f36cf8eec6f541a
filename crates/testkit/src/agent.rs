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

/// How an agent differs from the ordinary one of a test.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Whom it talks to; the fleet's broker unless something stands in between.
    pub broker_url: Option<String>,
    /// Where it finds its API server; the cluster itself unless something stands in between.
    pub api_server: Option<Route>,
    /// Where it lives. Several agents in one cluster need different ones, so a unique one is made up.
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
    scratch: Scratch,
}

/// It can be killed, stopped, paused and looked into as any process.
impl Deref for Agent {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Agent {
    /// Installs an agent into a cluster and starts it. It joins by itself; nobody waits for that here.
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
            .envs(options.environment.clone())
            .show_log(show_log);
        let process = Process::start(launch, scratch.path())?;
        Ok(Self { process, name: name.to_owned(), namespace, audit: cluster.audit(), scratch })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace it lives in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The user name under which the API server knows it.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// What it asked the API server since the mark.
    pub fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        self.audit.requests_by(&self.user(), since)
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// A second process with the same arguments, as a cloned pod would be: same account, same memory, same key.
    pub fn twin(&self) -> Result<Twin> {
        let scratch = Scratch::new("agent-twin")?;
        let process = Process::start(self.process.launch(), scratch.path())?;
        Ok(Twin { process, _scratch: scratch })
    }

    /// Puts another join token where it looks for one when it starts without an identity.
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

/// What an administrator does once per cluster: namespace, record kind, service account, rights, fence. Returns when the
/// fence stands.
pub async fn install(
    cluster: &Cluster,
    namespace: &str,
    arguments: &[impl AsRef<std::ffi::OsStr>],
) -> Result<()> {
    let launch = Launch::new("brokkr-agent", program("brokkr-agent")?)
        .args(["install", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .args(["--namespace", namespace])
        .args(arguments);
    run(launch, INSTALL_DEADLINE).await?.ok()?;
    Ok(())
}

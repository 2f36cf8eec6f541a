//! The user's own kubectl: it knows their clusters, logins and plugins.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// One cluster, as kubectl knows it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    which: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("kubectl is not here")]
    Missing,
    #[error("kubectl cannot be started: {0}")]
    Unusable(std::io::Error),
    /// What it said.
    #[error("{0}")]
    Failed(String),
}

impl Kubectl {
    pub fn new(kubeconfig: Option<&Path>, context: Option<&str>) -> Self {
        let mut which = Vec::new();
        if let Some(file) = kubeconfig {
            which.extend([OsString::from("--kubeconfig"), file.into()]);
        }
        if let Some(context) = context {
            which.extend([OsString::from("--context"), context.into()]);
        }
        Self { which }
    }

    /// The address of the cluster, or why there is none.
    pub async fn server(&self) -> Result<String, Refused> {
        self.run(&["get", "--raw", "/version", "--request-timeout=10s"], None).await?;
        let view = ["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"];
        self.run(&view, None).await
    }

    pub async fn apply(&self, manifests: &str) -> Result<String, Refused> {
        let apply =
            ["apply", "--server-side", "--force-conflicts", "--field-manager=brokkr-install", "-f", "-"];
        self.run(&apply, Some(manifests)).await
    }

    /// What is asked for as JSON; null if it is not there.
    pub async fn get(&self, what: &[&str]) -> Result<Value, Refused> {
        let get = [&["get", "--ignore-not-found", "-o", "json"], what].concat();
        let text = self.run(&get, None).await?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| Refused::Failed(format!("not JSON: {error}")))
    }

    pub async fn run(&self, arguments: &[&str], stdin: Option<&str>) -> Result<String, Refused> {
        let mut command = Command::new("kubectl");
        // Its plugins are other people's programs: the broker's token is none of their business.
        command
            .args(&self.which)
            .args(arguments)
            .env_remove("BROKKR_TOKEN")
            .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Refused::Missing,
            _ => Refused::Unusable(error),
        })?;
        if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
            // One that ends before it has read everything says itself why.
            pipe.write_all(text.as_bytes()).await.ok();
        }
        let output = child.wait_with_output().await.map_err(Refused::Unusable)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Err(Refused::Failed(told.trim().to_owned()))
    }
}

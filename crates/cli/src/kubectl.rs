//! A cluster, accessed with the user's kubectl.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use crate::program::{ProgramError, run};

const APPLY: [&str; 6] =
    ["apply", "--server-side", "--force-conflicts", "--field-manager=brokkr-install", "-f", "-"];

/// kubectl with the options that select a cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    options: Vec<OsString>,
}

impl Kubectl {
    pub fn new(kubeconfig: Option<&Path>, context: Option<&str>) -> Self {
        let mut options = Vec::new();
        if let Some(file) = kubeconfig {
            options.extend([OsString::from("--kubeconfig"), file.into()]);
        }
        if let Some(context) = context {
            options.extend([OsString::from("--context"), context.into()]);
        }
        Self { options }
    }

    /// Returns the address of the cluster.
    pub async fn server(&self) -> Result<String, ProgramError> {
        self.run(&["get", "--raw", "/version", "--request-timeout=10s"], None).await?;
        let view = ["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"];
        self.run(&view, None).await
    }

    pub async fn apply(&self, manifests: &str) -> Result<String, ProgramError> {
        self.run(&APPLY, Some(manifests)).await
    }

    /// Applies as a dry run on the server.
    pub async fn dry_run(&self, manifests: &str) -> Result<(), ProgramError> {
        self.run(&[&APPLY[..], &["--dry-run=server"]].concat(), Some(manifests)).await.map(|_| ())
    }

    /// Returns objects as JSON, null if they do not exist.
    pub async fn get(&self, what: &[&str]) -> Result<Value, ProgramError> {
        let get = [&["get", "--ignore-not-found", "-o", "json"], what].concat();
        let text = self.run(&get, None).await?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| ProgramError::Failed(format!("not JSON: {error}")))
    }

    pub async fn run(&self, arguments: &[&str], stdin: Option<&str>) -> Result<String, ProgramError> {
        let arguments = self.options.iter().cloned().chain(arguments.iter().map(OsString::from));
        let ran = run("kubectl", arguments, stdin).await?;
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }
}

//! A cluster, by way of the user's own kubectl.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use crate::program::{Refused, run};

const APPLY: [&str; 6] =
    ["apply", "--server-side", "--force-conflicts", "--field-manager=brokkr-install", "-f", "-"];

/// One cluster, as kubectl knows it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    which: Vec<OsString>,
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
        self.run(&APPLY, Some(manifests)).await
    }

    /// Whether the cluster would take them; nothing is changed.
    pub async fn try_out(&self, manifests: &str) -> Result<(), Refused> {
        self.run(&[&APPLY[..], &["--dry-run=server"]].concat(), Some(manifests)).await.map(|_| ())
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
        let arguments = self.which.iter().cloned().chain(arguments.iter().map(OsString::from));
        let ran = run("kubectl", arguments, stdin).await?;
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }
}

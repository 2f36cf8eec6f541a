//! The components that run workloads: controllers, scheduler, kwok instead of kubelets, and one node with enough capacity
//! for everything.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_engines::Engines;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::accounts::{CONTROLLER_MANAGER, KWOK, SCHEDULER};
use super::control_plane::SIGNING_KEY;
use crate::eventually::{Attempt, eventually};
use crate::process::{Launch, Process};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(120);

/// All components above the API server.
#[derive(Debug)]
pub(super) struct Workloads {
    processes: Vec<Process>,
}

impl Workloads {
    /// Starts the controllers and the scheduler, which simulated and real nodes need. `flags` are further flags of the
    /// controllers.
    pub(super) async fn controllers(
        engines: &Engines,
        scratch: &Scratch,
        kubeconfig: impl AsyncFn(&str) -> Result<PathBuf>,
        flags: &[(&str, &str)],
    ) -> Result<Vec<Process>> {
        let controller_manager =
            Launch::new("kube-controller-manager", engines.binary("kube-controller-manager"))
                .flag("kubeconfig", kubeconfig(CONTROLLER_MANAGER).await?)
                .flag("service-account-private-key-file", scratch.join(SIGNING_KEY))
                .flag("root-ca-file", scratch.join("ca.crt"))
                .flag("use-service-account-credentials", "false")
                .flag("leader-elect", "false")
                // Its default of 20 requests per second makes every test slow.
                .flag("kube-api-qps", "500")
                .flag("kube-api-burst", "1000")
                .flag("secure-port", "0");
        let controller_manager =
            flags.iter().fold(controller_manager, |launch, (name, value)| launch.flag(name, value));
        let scheduler = Launch::new("kube-scheduler", engines.binary("kube-scheduler"))
            .flag("kubeconfig", kubeconfig(SCHEDULER).await?)
            .flag("leader-elect", "false")
            .flag("kube-api-qps", "500")
            .flag("kube-api-burst", "1000")
            .flag("secure-port", "0");
        [controller_manager, scheduler]
            .map(|launch| Process::start(launch, scratch.path()))
            .into_iter()
            .collect()
    }

    pub(super) async fn start(
        engines: &Engines,
        scratch: &Scratch,
        kubeconfig: impl AsyncFn(&str) -> Result<PathBuf>,
        admin: kube::Client,
    ) -> Result<Self> {
        let mut processes = Self::controllers(engines, scratch, &kubeconfig, &[]).await?;
        let mut kwok = Launch::new("kwok", engines.binary("kwok"))
            .flag("kubeconfig", kubeconfig(KWOK).await?)
            .flag("manage-all-nodes", "true")
            .flag("node-lease-duration-seconds", "40")
            .flag("cidr", "10.128.0.0/9")
            // Ignores the developer's own settings.
            .env("KWOK_WORKDIR", scratch.join("kwok"));
        for stage in std::fs::read_dir(engines.stages()).context("cannot read kwok's stages")? {
            kwok = kwok.flag("config", stage?.path());
        }
        processes.push(Process::start(kwok, scratch.path())?);
        let workloads = Self { processes };
        workloads.ready(admin).await?;
        Ok(workloads)
    }

    pub(super) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Waits until the node accepts pods and the controllers have created the service account of `default`,
    /// without which no pod can be created.
    async fn ready(&self, admin: kube::Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(admin.clone());
        nodes.create(&PostParams::default(), &node()?).await.context("cannot create the node")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
        eventually(START_DEADLINE, "a node that accepts pods, and running controllers", async || {
            for process in &self.processes {
                if !process.is_running() {
                    return Attempt::NotYet(format!("{} ended:\n{}", process.name(), process.log_tail(20)));
                }
            }
            match (nodes.get("node-1").await, accounts.get("default").await) {
                (Ok(node), Ok(_)) if accepts_pods(&node) => Attempt::Done(()),
                (node, account) => Attempt::NotYet(format!("{node:?}\n{account:?}")),
            }
        })
        .await
    }
}

fn node() -> Result<Node> {
    let capacity = json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"});
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": "node-1",
            "labels": {"kubernetes.io/hostname": "node-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {"allocatable": capacity, "capacity": capacity},
    }))?)
}

/// Returns whether a node is ready and not tainted.
pub(crate) fn accepts_pods(node: &Node) -> bool {
    let is_ready = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let is_tainted = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).next().is_some();
    is_ready && !is_tainted
}

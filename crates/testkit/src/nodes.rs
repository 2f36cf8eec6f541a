//! Real nodes: kubelet, containerd, runc and kube-proxy, so that Pods really run.
//!
//! ```text
//! nodes/network.rs   the addresses of a cluster, and its bridge on the host
//! nodes/node.rs      one node: its namespaces and its processes
//! nodes/images.rs    images of Brokkr, of cluster DNS and of the test program, as archives
//! nodes/dns.rs       cluster DNS
//! nodes/leftovers.rs what a cluster of real nodes could leave behind on the host
//! nodes/sandbox.sh   holds namespaces, bridge and control groups, and removes them at the end
//! ```
//!
//! Every node has namespaces of its own for processes, mounts and network, so that nothing outlives it and its firewall rules
//! never touch the host. That needs root: see [`obstacle`].

pub(crate) mod dns;
pub mod images;
pub mod leftovers;
mod network;
mod node;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_engines::Engines;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::Api;
use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::cluster::accepts_pods;
use crate::eventually::{Attempt, eventually};
use crate::process::{Launch, Process};
use crate::scratch::Scratch;
pub use images::Image;
pub(crate) use network::Network;
pub use node::Node;

const START_DEADLINE: Duration = Duration::from_secs(180);
/// What Debian has to provide, with the package of each.
const PROGRAMS: [(&str, &str); 4] = [
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/sbin/iptables", "iptables"),
];
/// If it is set, tests fail where they cannot have real nodes, instead of being skipped.
const REQUIRED: &str = "BROKKR_REAL_NODES";

/// Returns why this machine cannot run real nodes.
pub fn obstacle() -> Option<String> {
    if !Uid::effective().is_root() {
        return Some("real nodes need root".into());
    }
    let missing = PROGRAMS.iter().filter(|(path, _)| !Path::new(path).exists());
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| format!("real nodes need the packages {}", packages.join(", ")))
}

/// Returns whether this run has to have real nodes, as in CI.
pub fn is_required() -> bool {
    std::env::var_os(REQUIRED).is_some()
}

/// Returns whether a test has to be skipped, and prints the reason; fails where real nodes are required.
pub fn skipped() -> Result<bool> {
    match obstacle() {
        Some(reason) if is_required() => Err(anyhow::anyhow!("{reason}, and {REQUIRED} is set")),
        Some(reason) => {
            eprintln!("SKIPPED: {reason}");
            Ok(true)
        }
        None => Ok(false),
    }
}

/// How soon Kubernetes notices that a node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMonitoring {
    /// With the defaults of Kubernetes: 50 seconds after the last sign of life, 40 before 1.32.
    Default,
    /// After eight seconds.
    Fast,
}

impl NodeMonitoring {
    /// Returns flags of kube-controller-manager.
    pub(crate) fn flags(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Default => &[],
            Self::Fast => &[("node-monitor-period", "1s"), ("node-monitor-grace-period", "8s")],
        }
    }

    /// Returns fields of the kubelet's configuration.
    fn kubelet_fields(self) -> serde_json::Map<String, Value> {
        match self {
            Self::Default => serde_json::Map::new(),
            // A lease is renewed four times in its duration.
            Self::Fast => [
                ("nodeLeaseDurationSeconds".to_owned(), json!(4)),
                ("nodeStatusUpdateFrequency".to_owned(), json!("1s")),
            ]
            .into_iter()
            .collect(),
        }
    }
}

/// The nodes of one cluster.
#[derive(Debug)]
pub(crate) struct RealNodes {
    // Dropped in this order: the nodes before the bridge that connects them.
    controllers: Vec<Process>,
    nodes: Vec<Node>,
    network: Network,
}

impl RealNodes {
    /// Starts nodes, and waits until they accept Pods. `controllers` are the processes that they depend on.
    pub(crate) async fn start(
        engines: &Engines,
        scratch: &Scratch,
        network: Network,
        controllers: Vec<Process>,
        monitoring: NodeMonitoring,
        kubeconfig: &Path,
        admin: kube::Client,
    ) -> Result<Self> {
        let starting = (0..network.nodes())
            .map(|at| Node::start(engines, scratch, &network, at, monitoring, kubeconfig));
        let nodes = try_join_all(starting).await?;
        let this = Self { controllers, nodes, network };
        let images = [images::sandbox(engines), images::dns(engines), images::test_program(engines)];
        for image in &images {
            this.import(image, scratch).await?;
        }
        this.ready(&admin).await?;
        Ok(this)
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.controllers.iter().chain(self.nodes.iter().flat_map(Node::processes))
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Imports an image into every node.
    pub(crate) async fn import(&self, image: &Image, scratch: &Scratch) -> Result<()> {
        let archive = image.write(scratch)?;
        try_join_all(self.nodes.iter().map(|node| node.import(image.repository(), &archive))).await?;
        if let Some((tag, digest)) = image.digest() {
            try_join_all(self.nodes.iter().map(|node| node.tag(tag, digest))).await?;
        }
        Ok(())
    }

    async fn ready(&self, admin: &kube::Client) -> Result<()> {
        let nodes: Api<KubernetesNode> = Api::all(admin.clone());
        for node in &self.nodes {
            eventually(START_DEADLINE, &format!("the node {} to accept Pods", node.name()), async || {
                if let Some(ended) = self.processes().find(|process| !process.is_running()) {
                    return Attempt::NotYet(format!("{} ended:\n{}", ended.name(), ended.log_tail(20)));
                }
                match nodes.get(node.name()).await {
                    Ok(node) if accepts_pods(&node) => Attempt::Done(()),
                    other => Attempt::NotYet(format!("{other:?}")),
                }
            })
            .await
            .with_context(|| node.logs())?;
        }
        Ok(())
    }
}

/// A process that holds resources of the kernel, such as namespaces, and removes them when it ends.
fn holder(name: &str, arguments: &[String]) -> Launch {
    Launch::new(name, "/bin/bash")
        .args(["-c", include_str!("nodes/sandbox.sh"), "sandbox"])
        .args(arguments)
        .ends_with_parent_by(nix::sys::signal::Signal::SIGTERM)
        .last_signal(nix::sys::signal::Signal::SIGTERM)
}

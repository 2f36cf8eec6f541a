//! The addresses of one cluster of real nodes, and the bridge on the host that connects them.
//!
//! They are from 198.18.0.0/15, which is reserved for tests of networks. Each cluster leases eight networks of 256 addresses:
//! nodes, Services, and the Pods of up to six nodes. The host has routes to all of them, so that a program on the host reaches
//! Pods and Services directly.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::holder;
use crate::process::Process;
use crate::scratch::Scratch;

const CLUSTERS: u8 = 32;
const NETWORKS_OF_A_CLUSTER: u8 = 8;
const MAX_NODES: usize = 6;
const DEADLINE: Duration = Duration::from_secs(20);

/// The network of one cluster.
#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    nodes: usize,
    _bridge: Process,
    _lease: File,
}

impl Network {
    /// Leases addresses for this many nodes, and creates the bridge.
    pub(crate) async fn create(nodes: usize, scratch: &Scratch) -> Result<Self> {
        anyhow::ensure!((1..=MAX_NODES).contains(&nodes), "a cluster can have 1 to {MAX_NODES} real nodes");
        let (number, lease) = lease()?;
        let mut arguments =
            vec!["network".to_owned(), bridge(number), format!("{}/24", address(number, 0, 1))];
        // The route to Services leads to the first node; any node could forward to them.
        arguments.extend([network(number, 1), address(number, 0, 2).to_string()]);
        for at in 0..nodes {
            arguments.extend(route_to_pods(number, at));
        }
        let process = Process::start(holder(&bridge(number), &arguments), scratch.path())?;
        process.ready_when(DEADLINE, async || process.log().contains("ready")).await?;
        Ok(Self { number, nodes, _bridge: process, _lease: lease })
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The name of the bridge, and the beginning of the names of all nodes.
    pub(crate) fn name(&self) -> String {
        bridge(self.number)
    }

    /// The host's address, where the API server and PostgreSQL listen.
    pub(crate) fn host(&self) -> Ipv4Addr {
        address(self.number, 0, 1)
    }

    pub(super) fn node(&self, at: usize) -> Ipv4Addr {
        node(self.number, at)
    }

    pub(crate) fn services(&self) -> String {
        network(self.number, 1)
    }

    /// The address of the Service `kubernetes`.
    pub(crate) fn kubernetes(&self) -> Ipv4Addr {
        address(self.number, 1, 1)
    }

    pub(super) fn dns(&self) -> Ipv4Addr {
        address(self.number, 1, 10)
    }

    pub(super) fn pods(&self, node: usize) -> String {
        pods(self.number, node)
    }

    /// The destinations and next hops with which a node reaches the Pods of the others.
    pub(super) fn routes_from(&self, node: usize) -> Vec<String> {
        (0..self.nodes).filter(|&at| at != node).flat_map(|at| route_to_pods(self.number, at)).collect()
    }
}

fn lease() -> Result<(u8, File)> {
    let leases = std::env::temp_dir().join("brokkr-networks");
    fs::create_dir_all(&leases).context("cannot create the folder of network leases")?;
    for number in 0..CLUSTERS {
        let lease = File::create(leases.join(number.to_string()))?;
        // After a test is killed, its lease may be free before its bridge is gone.
        if lease.try_lock().is_ok() && !fs::exists(format!("/sys/class/net/{}", bridge(number)))? {
            return Ok((number, lease));
        }
    }
    bail!("all networks for real nodes are in use")
}

fn bridge(number: u8) -> String {
    format!("brokkr{number}")
}

fn address(number: u8, network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number * NETWORKS_OF_A_CLUSTER + network, host)
}

fn network(number: u8, network: u8) -> String {
    format!("{}/24", address(number, network, 0))
}

fn node(number: u8, at: usize) -> Ipv4Addr {
    address(number, 0, 2 + small(at))
}

fn pods(number: u8, node: usize) -> String {
    network(number, 2 + small(node))
}

fn route_to_pods(number: u8, at: usize) -> [String; 2] {
    [pods(number, at), node(number, at).to_string()]
}

/// Converts the number of a node, which always fits: there are at most [`MAX_NODES`].
fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

//! A real Kubernetes: etcd and kube-apiserver, and, when workloads are to run, the controllers, the
//! scheduler and either kwok, which simulates the kubelet, or real nodes.
//!
//! ```text
//! cluster/control_plane.rs   etcd and the API server: start, kill, start again
//! cluster/workloads.rs       controllers, scheduler, kwok and one large node
//! cluster/accounts.rs        credentials: the token file, service account tokens
//! cluster/kubeconfig.rs      the files that clients read
//! ```
//!
//! All tests of a run share one cluster with workloads ([`Cluster::shared`]) under names of their own. A
//! test that kills etcd or the API server, or that counts everything that happens, starts a cluster for
//! itself.

mod accounts;
mod control_plane;
pub mod kubeconfig;
mod workloads;

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};

use crate::audit::AuditLog;
use crate::names::unique;
use crate::nodes::{Image, Network, Node, NodeMonitoring, RealNodes, dns};
use crate::process::{Launch, Output, Process, run};
use crate::proxy::Route;
use crate::scratch::Scratch;
use crate::shared;
use control_plane::{ControlPlane, Front, LaggingServer, Storage};
use kubeconfig::Context as KubeContext;
use workloads::Workloads;
pub(crate) use workloads::accepts_pods;

const KUBECTL_DEADLINE: Duration = Duration::from_secs(120);

/// The address and credentials of a cluster, in a form that can be passed to other processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// `https://127.0.0.1:PORT`
    pub url: String,
    /// The certificate of the authority that signed the API server's certificate, as PEM.
    pub authority: String,
    /// The token of the user `admin`, who may do everything.
    pub admin_token: String,
    /// A kubeconfig for `admin`.
    pub admin_kubeconfig: PathBuf,
    pub audit_log: PathBuf,
    /// Whether the cluster runs pods.
    pub workloads: bool,
    /// Whether its pods really run.
    pub real_nodes: bool,
}

/// A cluster for tests: a private one, or the one of the whole run.
#[derive(Debug)]
pub struct Cluster {
    facts: Facts,
    // Dropped in this order: clients before the server, folders last.
    workloads: Option<Workloads>,
    real_nodes: Option<RealNodes>,
    lagging_server: Option<LaggingServer>,
    control_plane: Option<ControlPlane>,
    scratch: Scratch,
}

impl Cluster {
    /// Returns the cluster, with workloads, that all tests of this run share.
    pub async fn shared() -> Result<Arc<Self>> {
        shared::cluster().await
    }

    /// The cluster with real nodes that the tests of this run share. It needs root: see [`crate::nodes::skipped`].
    pub async fn shared_real() -> Result<Arc<Self>> {
        shared::real_cluster().await
    }

    /// Starts a private cluster where nothing runs: no controllers, so no garbage collection, no namespace
    /// deletion, no pods. It starts fastest, and only the test makes requests.
    pub async fn api_only() -> Result<Self> {
        Self::api_only_storing(Storage::Fast).await
    }

    async fn api_only_storing(storage: Storage) -> Result<Self> {
        Self::start(Scratch::new("cluster")?, storage, &Front::host_only()).await
    }

    async fn start(scratch: Scratch, storage: Storage, front: &Front) -> Result<Self> {
        let engines = brokkr_engines::locate()?;
        let control_plane = ControlPlane::start(&engines, &scratch, storage, front).await?;
        Ok(Self {
            facts: control_plane.facts(),
            workloads: None,
            real_nodes: None,
            lagging_server: None,
            control_plane: Some(control_plane),
            scratch,
        })
    }

    /// Starts a private cluster with real nodes and cluster DNS, where Pods really run. It needs root: see
    /// [`crate::nodes::skipped`].
    pub async fn with_real_nodes(nodes: usize) -> Result<Self> {
        Self::with_monitored_nodes(nodes, NodeMonitoring::Default).await
    }

    /// Like [`Self::with_real_nodes`], for tests that lose a node.
    pub async fn with_monitored_nodes(nodes: usize, monitoring: NodeMonitoring) -> Result<Self> {
        let engines = brokkr_engines::locate()?;
        let scratch = Scratch::new("cluster")?;
        let network = Network::create(nodes, &scratch).await?;
        let front = Front {
            address: network.host(),
            services: network.services(),
            kubernetes: Some(network.kubernetes()),
        };
        let mut cluster = Self::start(scratch, Storage::Fast, &front).await?;
        let kubeconfigs =
            async |user: &str| cluster.kubeconfig_with_token(user, &accounts::token(user)).await;
        let controllers =
            Workloads::controllers(&engines, &cluster.scratch, &kubeconfigs, monitoring.flags()).await?;
        let kubelet = kubeconfigs(accounts::KUBELET).await?;
        let admin = cluster.admin().await?;
        let scratch = &cluster.scratch;
        let nodes =
            RealNodes::start(&engines, scratch, network, controllers, monitoring, &kubelet, admin).await?;
        dns::start(&cluster, nodes.network()).await?;
        cluster.real_nodes = Some(nodes);
        (cluster.facts.workloads, cluster.facts.real_nodes) = (true, true);
        Ok(cluster)
    }

    /// Starts a private cluster where Deployments become available and Jobs complete.
    pub async fn with_workloads() -> Result<Self> {
        Self::with_workloads_storing(Storage::Fast).await
    }

    /// Starts a private cluster with durable storage, for tests that kill etcd.
    pub async fn durable() -> Result<Self> {
        Self::with_workloads_storing(Storage::Durable).await
    }

    async fn with_workloads_storing(storage: Storage) -> Result<Self> {
        let mut cluster = Self::api_only_storing(storage).await?;
        cluster.start_workloads().await?;
        Ok(cluster)
    }

    /// Starts controllers, scheduler and kwok in a private cluster that has none yet.
    pub async fn start_workloads(&mut self) -> Result<()> {
        let engines = brokkr_engines::locate()?;
        let kubeconfigs = async |user: &str| self.kubeconfig_with_token(user, &accounts::token(user)).await;
        let workloads = Workloads::start(&engines, &self.scratch, kubeconfigs, self.admin().await?).await?;
        self.workloads = Some(workloads);
        self.facts.workloads = true;
        Ok(())
    }

    /// Starts a second API server on the same etcd, which gets etcd's answers this much later. Returns the addresses of both
    /// servers, the current one first.
    pub async fn start_lagging_server(&mut self, delay: Duration) -> Result<[SocketAddr; 2]> {
        let control_plane = self.control_plane.as_ref().context("a shared cluster has one API server")?;
        let lagging = control_plane.start_lagging_server(&brokkr_engines::locate()?, &self.scratch).await?;
        // Not before: to start, a server makes hundreds of requests, one after the other.
        lagging.etcd.delay_responses(delay);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, lagging.port.number()));
        self.lagging_server = Some(lagging);
        let current = self.facts.url.strip_prefix("https://").context("an address")?.parse()?;
        Ok([current, address])
    }

    pub(crate) fn found(facts: Facts) -> Result<Self> {
        Ok(Self {
            facts,
            workloads: None,
            real_nodes: None,
            lagging_server: None,
            control_plane: None,
            scratch: Scratch::new("cluster-client")?,
        })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the API server's address.
    pub fn url(&self) -> &str {
        &self.facts.url
    }

    /// Returns a kubeconfig file for the user `admin`, who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.facts.admin_kubeconfig
    }

    /// Returns a new client as `admin`. Each call makes one, because a client belongs to the runtime of its test.
    pub async fn admin(&self) -> Result<kube::Client> {
        client(self.kubeconfig()).await
    }

    /// Returns a kubeconfig file for a service account, with a token that is valid for a day.
    pub async fn kubeconfig_for(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        self.kubeconfig_for_by(namespace, account, None).await
    }

    /// Returns a kubeconfig file for a service account; with a route, requests go through the route's proxy.
    pub async fn kubeconfig_for_by(
        &self,
        namespace: &str,
        account: &str,
        route: Option<&Route>,
    ) -> Result<PathBuf> {
        let token = accounts::service_account_token(self.admin().await?, namespace, account).await?;
        let name = format!("{namespace}-{account}");
        let direct = self.context(&name, &token);
        let context = match route {
            Some(Route { url, authority }) => KubeContext { url, authority, ..direct },
            None => direct,
        };
        let path = self.scratch.join(format!("{}.kubeconfig", unique(&name)));
        kubeconfig::write(&path, &[context])?;
        Ok(path)
    }

    /// Returns a client that acts as a service account.
    pub async fn client_for(&self, namespace: &str, account: &str) -> Result<kube::Client> {
        client(&self.kubeconfig_for(namespace, account).await?).await
    }

    async fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.scratch.join(format!("{}.kubeconfig", unique(name)));
        kubeconfig::write(&path, &[self.context(name, token)])?;
        Ok(path)
    }

    fn context<'a>(&'a self, name: &'a str, token: &'a str) -> KubeContext<'a> {
        KubeContext { name, url: &self.facts.url, authority: &self.facts.authority, token }
    }

    /// Returns this cluster's `admin` entry for a kubeconfig with several clusters.
    pub fn admin_context<'a>(&'a self, name: &'a str) -> KubeContext<'a> {
        self.context(name, &self.facts.admin_token)
    }

    /// Runs kubectl as `admin`.
    pub async fn kubectl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        let kubectl = brokkr_engines::locate()?.binary("kubectl").to_owned();
        let launch = Launch::new("kubectl", kubectl)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            // Its discovery cache is keyed by host and port, and ports are reused by other clusters.
            .env("KUBECACHEDIR", self.scratch.join("kubectl-cache"));
        run(launch, KUBECTL_DEADLINE).await
    }

    /// Runs helm as `admin`.
    pub async fn helm(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
        let helm = brokkr_engines::locate()?.binary("helm").to_owned();
        let launch = Launch::new("helm", helm)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            // Ignores the developer's own Helm settings.
            .env("HELM_CACHE_HOME", self.scratch.join("helm-cache"))
            .env("HELM_CONFIG_HOME", self.scratch.join("helm-config"))
            .env("HELM_DATA_HOME", self.scratch.join("helm-data"));
        run(launch, KUBECTL_DEADLINE).await
    }

    /// Applies manifests as `admin`, with kubectl.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        let file = self.scratch.write(&format!("{}.yaml", unique("apply")), yaml)?;
        self.kubectl([OsStr::new("apply"), OsStr::new("-f"), file.as_os_str()]).await?.ok()?;
        Ok(())
    }

    /// Returns the API server's audit log.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.facts.audit_log.clone())
    }

    /// Returns the API server's process; only a private cluster has one.
    pub fn api_server(&self) -> Option<&Process> {
        self.control_plane.as_ref().map(ControlPlane::api_server)
    }

    /// Kills the API server without warning. etcd keeps what was stored.
    pub fn kill_api_server(&self) -> Result<()> {
        self.own_api_server()?.kill9();
        Ok(())
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let control_plane = self.control_plane.as_ref().context("a shared cluster must not be restarted")?;
        control_plane.start_api_server_again().await
    }

    /// Kills etcd without warning, and starts it again on its data on disk.
    pub async fn restart_etcd(&self) -> Result<()> {
        let control_plane = self.control_plane.as_ref().context("a shared cluster must not be killed")?;
        control_plane.restart_etcd().await
    }

    fn own_api_server(&self) -> Result<&Process> {
        self.api_server().context("a shared cluster must not be killed")
    }

    /// Returns the processes of this cluster that this test owns.
    pub fn processes(&self) -> Vec<&Process> {
        let control_plane = self.control_plane.iter().flat_map(ControlPlane::processes);
        let nodes = self.real_nodes.iter().flat_map(RealNodes::processes);
        control_plane.chain(self.workloads.iter().flat_map(Workloads::processes)).chain(nodes).collect()
    }

    // ── real nodes ──

    /// Returns the real nodes of a private cluster.
    pub fn nodes(&self) -> &[Node] {
        self.real_nodes.as_ref().map(RealNodes::nodes).unwrap_or_default()
    }

    /// Imports an image into every real node.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let nodes = self.real_nodes.as_ref().context("this cluster has no real nodes")?;
        nodes.import(image, &self.scratch).await
    }

    /// Returns the address at which Pods reach programs on the host.
    pub fn host_address(&self) -> Result<Ipv4Addr> {
        Ok(self.real_nodes.as_ref().context("this cluster has no real nodes")?.network().host())
    }

    /// Returns the name of the real nodes' bridge, with which the names of the nodes in the kernel begin.
    pub fn kernel_name(&self) -> Result<String> {
        Ok(self.real_nodes.as_ref().context("this cluster has no real nodes")?.network().name())
    }

    /// Returns the folder with everything of this cluster.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }
}

/// Returns a client for a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

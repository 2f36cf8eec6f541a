//! One real node: its namespaces, containerd, kubelet and kube-proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_engines::Engines;
use serde_json::json;

use super::images::SANDBOX;
use super::network::Network;
use super::{NodeMonitoring, holder};
use crate::process::{Launch, Output, Process, run};
use crate::scratch::Scratch;

const START_DEADLINE: Duration = Duration::from_secs(60);
const IMPORT_DEADLINE: Duration = Duration::from_secs(120);
const LINK_DEADLINE: Duration = Duration::from_secs(10);
/// Where Debian has runc, nft and what the node's programs call.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A node on which Pods really run.
#[derive(Debug)]
pub struct Node {
    name: String,
    // Dropped in this order: programs before the namespaces that they run in.
    kube_proxy: Process,
    kubelet: Process,
    containerd: Process,
    _sandbox: Process,
    ctr: PathBuf,
    socket: PathBuf,
}

impl Node {
    pub(super) async fn start(
        engines: &Engines,
        scratch: &Scratch,
        network: &Network,
        at: usize,
        monitoring: NodeMonitoring,
        kubeconfig: &Path,
    ) -> Result<Self> {
        let name = format!("{}n{}", network.name(), at + 1);
        let folder = scratch.join(&name);
        fs::create_dir_all(&folder)?;
        let (sandbox, first) = sandbox(engines, network, at, &name, &folder).await?;
        let program = |program: &str| {
            // nsenter forks (no `--no-fork`), so that the program itself is in the PID namespace, and not
            // only its children. The program dies with nsenter, because of `--pdeathsig`.
            Launch::new(format!("{name}-{program}"), "/usr/bin/nsenter")
                .args(["--target", &first, "--mount", "--pid", "--net", "--"])
                .args(["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"])
                .arg(engines.binary(program))
                .env("PATH", format!("{}:{PATH}", shim_folder(engines)))
        };

        let socket = folder.join("containerd.sock");
        let config = write(&folder, "containerd.toml", &containerd_config(&folder, &socket, network, at)?)?;
        let containerd = Process::start(program("containerd").arg("--config").arg(config), scratch.path())?;
        let ctr = engines.binary("ctr").to_owned();
        serves(&containerd, &ctr, &socket).await?;

        let kubelet = program("kubelet")
            .flag(
                "config",
                write(
                    &folder,
                    "kubelet.json",
                    &kubelet_config(&folder, &socket, network, &name, monitoring)?,
                )?,
            )
            .flag("kubeconfig", kubeconfig)
            .flag("hostname-override", &name)
            .flag("node-ip", network.node(at).to_string())
            .flag("root-dir", folder.join("kubelet"))
            .flag("cert-dir", folder.join("kubelet-certificates"));
        let kube_proxy = program("kube-proxy")
            .flag("kubeconfig", kubeconfig)
            .flag("hostname-override", &name)
            .flag("proxy-mode", "nftables")
            .flag("cluster-cidr", network.pods(at))
            // 0 leaves the limits unchanged: they belong to the kernel of the host.
            .flag("conntrack-max-per-core", "0")
            .flag("conntrack-tcp-timeout-established", "0")
            .flag("conntrack-tcp-timeout-close-wait", "0");
        Ok(Self {
            kubelet: Process::start(kubelet, scratch.path())?,
            kube_proxy: Process::start(kube_proxy, scratch.path())?,
            name,
            containerd,
            _sandbox: sandbox,
            ctr,
            socket,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kubelet(&self) -> &Process {
        &self.kubelet
    }

    /// Disconnects the node from the network and kills kubelet and containerd, as if its machine had failed. Its containers keep
    /// running, so that they act on what they last knew when the node is [connected](Self::connect) again.
    pub async fn lose(&self) -> Result<()> {
        self.set_link("down").await?;
        self.kubelet.kill9();
        self.containerd.kill9();
        Ok(())
    }

    /// Connects a lost node to the network again. Without its kubelet, Kubernetes cannot end its Pods.
    pub async fn connect(&self) -> Result<()> {
        self.set_link("up").await
    }

    /// Starts kubelet and containerd of a lost node again.
    pub async fn start_again(&self) -> Result<()> {
        self.containerd.start_again()?;
        serves(&self.containerd, &self.ctr, &self.socket).await?;
        self.kubelet.start_again()
    }

    /// Changes the end of its cable on the host.
    async fn set_link(&self, state: &str) -> Result<()> {
        let ip = Launch::new("ip", "/usr/sbin/ip").args(["link", "set", &self.name, state]);
        run(ip, LINK_DEADLINE).await?.ok()?;
        Ok(())
    }

    pub(super) fn processes(&self) -> [&Process; 3] {
        [&self.containerd, &self.kubelet, &self.kube_proxy]
    }

    pub(super) fn logs(&self) -> String {
        self.processes().map(|process| format!("{}:\n{}", process.name(), process.log_tail(15))).join("\n")
    }

    /// Imports an image archive into the node's container runtime.
    pub(super) async fn import(&self, repository: &str, archive: &Path) -> Result<()> {
        let archive = archive.display().to_string();
        let arguments = ["--namespace", "k8s.io", "images", "import", "--base-name", repository, &archive];
        ctr_run(&self.ctr, &self.socket, arguments).await?.ok()?;
        Ok(())
    }

    /// Gives an imported image a further name, such as its digest.
    pub(super) async fn tag(&self, image: &str, name: &str) -> Result<()> {
        let arguments = ["--namespace", "k8s.io", "images", "tag", "--force", image, name];
        ctr_run(&self.ctr, &self.socket, arguments).await?.ok()?;
        Ok(())
    }
}

/// Waits for containerd: a kubelet that cannot reach it exits.
async fn serves(containerd: &Process, ctr: &Path, socket: &Path) -> Result<()> {
    let answers = async || matches!(ctr_run(ctr, socket, ["version"]).await, Ok(output) if output.success());
    containerd.ready_when(START_DEADLINE, answers).await
}

async fn ctr_run<'a>(
    ctr: &Path,
    socket: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Output> {
    run(Launch::new("ctr", ctr).arg("--address").arg(socket).args(arguments), IMPORT_DEADLINE).await
}

/// Creates the namespaces, and returns the process id of the first process in them.
async fn sandbox(
    engines: &Engines,
    network: &Network,
    at: usize,
    name: &str,
    folder: &Path,
) -> Result<(Process, String)> {
    let first = folder.join("first.pid");
    let path = |path: &Path| path.display().to_string();
    let mut arguments = vec![
        "node".to_owned(),
        name.to_owned(),
        network.name(),
        format!("{}/24", network.node(at)),
        network.host().to_string(),
        path(&first),
        path(engines.binary("testpod")),
    ];
    arguments.extend(network.routes_from(at));
    let sandbox = Process::start(holder(&format!("{name}-sandbox"), &arguments), folder)?;
    sandbox.ready_when(START_DEADLINE, async || sandbox.log().contains("ready")).await?;
    let first = fs::read_to_string(&first).context("the node has no first process")?;
    Ok((sandbox, first.trim().to_owned()))
}

fn shim_folder(engines: &Engines) -> String {
    let shim = engines.binary("containerd-shim-runc-v2");
    shim.parent().map(|folder| folder.display().to_string()).unwrap_or_default()
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path)
}

fn containerd_config(folder: &Path, socket: &Path, network: &Network, at: usize) -> Result<String> {
    let cni = folder.join("cni");
    fs::create_dir_all(&cni)?;
    let plugin = json!({
        "type": "ptp",
        "ipMasq": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pods(at)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    });
    let list = json!({"cniVersion": "1.0.0", "name": "brokkr", "plugins": [plugin]});
    write(&cni, "10-brokkr.conflist", &list.to_string())?;
    Ok(format!(
        "version = 3\n\
         root = '{folder}/containerd'\n\
         state = '{folder}/containerd-state'\n\
         [grpc]\n\
         address = '{socket}'\n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
         sandbox = '{SANDBOX}'\n\
         [plugins.'io.containerd.cri.v1.runtime']\n\
         # Lowering oom_score_adj needs CAP_SYS_RESOURCE.\n\
         restrict_oom_score_adj = true\n\
         [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
         bin_dirs = ['/usr/lib/cni']\n\
         conf_dir = '{cni}'\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
         runtime_type = 'io.containerd.runc.v2'\n",
        folder = folder.display(),
        socket = socket.display(),
        cni = cni.display(),
    ))
}

fn kubelet_config(
    folder: &Path,
    socket: &Path,
    network: &Network,
    name: &str,
    monitoring: NodeMonitoring,
) -> Result<String> {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{name}"),
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
        "clusterDNS": [network.dns().to_string()],
        "clusterDomain": "cluster.local",
        // The host's name servers are out of reach.
        "resolvConf": write(folder, "resolv.conf", "")?,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "podLogsDir": folder.join("pod-logs"),
    });
    if let Some(config) = config.as_object_mut() {
        config.extend(monitoring.kubelet_fields());
    }
    Ok(config.to_string())
}

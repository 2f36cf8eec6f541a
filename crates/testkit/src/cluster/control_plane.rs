//! etcd and kube-apiserver: start, kill, start again.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use brokkr_engines::Engines;
use rcgen::KeyPair;

use super::{Facts, accounts, kubeconfig};
use crate::port::Port;
use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::tcp_proxy::TcpProxy;
use crate::tls::{Authority, Identity};

const START_DEADLINE: Duration = Duration::from_secs(120);

/// The audit policy: every request when it is answered, and watches when they begin, without bodies.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// Whether etcd waits for the disk. Most tests do not kill etcd and are faster without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Fast,
    Durable,
}

/// Where the API server listens, and the addresses of Services.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub address: Ipv4Addr,
    pub services: String,
    /// The address of the Service `kubernetes`, if Pods can use it.
    pub kubernetes: Option<Ipv4Addr>,
}

impl Front {
    /// No Pod really runs, so nothing but the host reaches the API server.
    pub(super) fn host_only() -> Self {
        Self { address: Ipv4Addr::LOCALHOST, services: "10.0.0.0/16".into(), kubernetes: None }
    }
}

/// etcd and the API server.
#[derive(Debug)]
pub(super) struct ControlPlane {
    facts: Facts,
    api_server: Process,
    etcd: Process,
    etcd_address: SocketAddr,
    files: ApiServerFiles,
    _ports: [Port; 3],
}

/// A second API server on the same etcd, whose answers it gets late.
#[derive(Debug)]
pub(super) struct LaggingServer {
    _process: Process,
    pub etcd: TcpProxy,
    pub port: Port,
}

impl ControlPlane {
    pub(super) async fn start(
        engines: &Engines,
        scratch: &Scratch,
        storage: Storage,
        front: &Front,
    ) -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let [client, peer, secure] = &ports;
        let etcd_url = format!("http://{}", client.address());
        let etcd = Process::start(etcd(engines, scratch, &etcd_url, peer, storage), scratch.path())?;

        let authority = Authority::new("brokkr-test-kubernetes")?;
        let facts = Facts {
            url: format!("https://{}:{}", front.address, secure.number()),
            authority: authority.pem(),
            admin_token: accounts::token(accounts::ADMIN),
            admin_kubeconfig: scratch.join("admin.kubeconfig"),
            audit_log: scratch.join("audit.log"),
            workloads: false,
            real_nodes: false,
        };
        let context = kubeconfig::Context {
            name: accounts::ADMIN,
            url: &facts.url,
            authority: &facts.authority,
            token: &facts.admin_token,
        };
        kubeconfig::write(&facts.admin_kubeconfig, &[context])?;
        // Create the log: readers open it before the server has written its first line.
        fs::write(&facts.audit_log, "")?;

        let files = ApiServerFiles::write(scratch, &authority, front)?;
        let api_server = api_server("kube-apiserver", engines, scratch, &files, &etcd_url, secure, front)
            .flag("audit-log-path", &facts.audit_log);
        let api_server = Process::start(api_server, scratch.path())?;
        let etcd_address = SocketAddr::from(([127, 0, 0, 1], client.number()));
        let control_plane = Self { facts, api_server, etcd, etcd_address, files, _ports: ports };
        wait_until_ready(&control_plane.facts, &control_plane.facts.url, &control_plane.api_server).await?;
        Ok(control_plane)
    }

    /// Starts a second API server on the same etcd. Its audit log is its own.
    pub(super) async fn start_lagging_server(
        &self,
        engines: &Engines,
        scratch: &Scratch,
    ) -> Result<LaggingServer> {
        let (etcd, port) = (TcpProxy::start(vec![self.etcd_address], 0).await?, Port::free()?);
        let etcd_url = format!("http://{}", etcd.address());
        let launch = api_server(
            "lagging-kube-apiserver",
            engines,
            scratch,
            &self.files,
            &etcd_url,
            &port,
            &Front::host_only(),
        )
        .flag("audit-log-path", scratch.join("lagging-audit.log"))
        // The etcd checks of its readiness would fail.
        .flag("etcd-healthcheck-timeout", "30s")
        .flag("etcd-readycheck-timeout", "30s");
        let process = Process::start(launch, scratch.path())?;
        wait_until_ready(&self.facts, &format!("https://{}", port.address()), &process).await?;
        Ok(LaggingServer { _process: process, etcd, port })
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    pub(super) fn api_server(&self) -> &Process {
        &self.api_server
    }

    pub(super) fn processes(&self) -> [&Process; 2] {
        [&self.etcd, &self.api_server]
    }

    pub(super) async fn start_api_server_again(&self) -> Result<()> {
        self.api_server.start_again()?;
        wait_until_ready(&self.facts, &self.facts.url, &self.api_server).await
    }

    pub(super) async fn restart_etcd(&self) -> Result<()> {
        self.etcd.kill9();
        self.etcd.start_again()?;
        wait_until_ready(&self.facts, &self.facts.url, &self.api_server).await
    }
}

/// Waits until an API server of the cluster is ready.
async fn wait_until_ready(facts: &Facts, url: &str, api_server: &Process) -> Result<()> {
    let authority = reqwest::Certificate::from_pem(facts.authority.as_bytes())?;
    let client = reqwest::Client::builder()
        .tls_certs_only([authority])
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()?;
    let url = format!("{url}/readyz");
    let is_ready = async || {
        let answer = client.get(&url).bearer_auth(&facts.admin_token).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    };
    api_server.ready_when(START_DEADLINE, is_ready).await
}

fn etcd(engines: &Engines, scratch: &Scratch, url: &str, peer: &Port, storage: Storage) -> Launch {
    let peer_url = format!("http://{}", peer.address());
    let etcd = Launch::new("etcd", engines.binary("etcd"))
        .flag("data-dir", scratch.join("etcd"))
        .flag("listen-client-urls", url)
        .flag("advertise-client-urls", url)
        .flag("listen-peer-urls", &peer_url)
        .flag("initial-advertise-peer-urls", &peer_url)
        .flag("initial-cluster", format!("default={peer_url}"))
        .flag("log-level", "warn");
    match storage {
        Storage::Fast => etcd.arg("--unsafe-no-fsync"),
        Storage::Durable => etcd,
    }
}

/// The files that all API servers of the cluster read.
#[derive(Debug)]
struct ApiServerFiles {
    serving: Identity,
    signing: PathBuf,
    verifying: PathBuf,
    tokens: PathBuf,
    audit_policy: PathBuf,
}

impl ApiServerFiles {
    fn write(scratch: &Scratch, authority: &Authority, front: &Front) -> Result<Self> {
        let address = front.address.to_string();
        let kubernetes = front.kubernetes.map(|address| address.to_string());
        let mut names = vec!["kubernetes", "kubernetes.default.svc", &address];
        names.extend(kubernetes.as_deref());
        let serving = authority.server(scratch, "kube-apiserver", &names)?;
        let (signing, verifying) = service_account_keys(scratch)?;
        scratch.write("ca.crt", authority.pem())?;
        let tokens = scratch.write("tokens.csv", accounts::token_file())?;
        let audit_policy = scratch.write("audit-policy.yaml", AUDIT_POLICY)?;
        Ok(Self { serving, signing, verifying, tokens, audit_policy })
    }
}

fn api_server(
    name: &'static str,
    engines: &Engines,
    scratch: &Scratch,
    files: &ApiServerFiles,
    etcd_url: &str,
    port: &Port,
    front: &Front,
) -> Launch {
    let address = front.address.to_string();
    // A loopback address would be rejected in the Service `kubernetes`.
    let reconciler = if front.kubernetes.is_some() { "lease" } else { "none" };
    Launch::new(name, engines.binary("kube-apiserver"))
        .flag("etcd-servers", etcd_url)
        .flag("bind-address", &address)
        .flag("secure-port", port.number().to_string())
        .flag("advertise-address", &address)
        .flag("endpoint-reconciler-type", reconciler)
        .flag("kubelet-preferred-address-types", "InternalIP")
        .flag("cert-dir", scratch.join("certificates"))
        .flag("tls-cert-file", &files.serving.certificate)
        .flag("tls-private-key-file", &files.serving.key)
        .flag("service-account-key-file", &files.verifying)
        .flag("service-account-signing-key-file", &files.signing)
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-cluster-ip-range", &front.services)
        .flag("authorization-mode", "RBAC")
        .flag("token-auth-file", &files.tokens)
        .flag("audit-policy-file", &files.audit_policy)
        // In megabytes, so large that the log is never rotated: a new, empty log would look as if there had
        // been no requests.
        .flag("audit-log-maxsize", "1000000")
        // At its end, the server need not wait for clients: the processes of the tests have already ended.
        .flag("shutdown-delay-duration", "0s")
}

/// Creates the key pair for service account tokens. The controllers sign with it too.
fn service_account_keys(scratch: &Scratch) -> Result<(PathBuf, PathBuf)> {
    let key = KeyPair::generate().context("cannot generate the key for service account tokens")?;
    let signing = scratch.write(SIGNING_KEY, key.serialize_pem())?;
    let verifying = scratch.write("service-accounts.pub", key.public_key_pem())?;
    Ok((signing, verifying))
}

pub(super) const SIGNING_KEY: &str = "service-accounts.key";

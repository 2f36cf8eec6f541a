//! Brokkr itself in Pods: broker and agent from our images and charts, under their RBAC, security contexts, probes and limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::nodes::{Image, skipped};
use brokkr_testkit::process::run;
use brokkr_testkit::{
    Attempt, Cluster, Database, Launch, Output, Postgres, Process, Scratch, eventually, programs,
};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

const DEADLINE: Duration = Duration::from_secs(180);
/// The port in the notes of the chart.
const PORT: u16 = 8780;

/// A cluster with two real nodes, and PostgreSQL beside it.
struct Site {
    cluster: Cluster,
    database: Database,
    scratch: Scratch,
}

impl Site {
    async fn start() -> Result<Self> {
        let (cluster, postgres) = tokio::try_join!(Cluster::with_real_nodes(2), Postgres::shared())?;
        for name in ["brokkr-broker", "brokkr-agent"] {
            cluster.import(&Image::brokkr(name)?).await?;
        }
        Ok(Self { cluster, database: postgres.database().await?, scratch: Scratch::new("ourselves")? })
    }

    /// Lets Pods reach PostgreSQL, which listens on the loopback address, at the address of the host.
    async fn database_url(&self) -> Result<String> {
        let url = self.database.url();
        let inner = url
            .split_once('@')
            .and_then(|(_, rest)| rest.split_once('/'))
            .context("a database URL")?
            .0
            .to_owned();
        let listener = TcpListener::bind((self.cluster.host_address()?, 0)).await?;
        let outer = listener.local_addr()?.to_string();
        let target = inner.clone();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(&target).await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
            }
        });
        Ok(url.replace(&inner, &outer))
    }

    /// Types a command, as a user does, with `brokkr`, `kubectl` and `helm` of this build.
    async fn types(&self, command: &str) -> Result<Output> {
        match run(self.shell(command)?, DEADLINE).await?.ok() {
            Ok(output) => Ok(output),
            Err(error) => Err(error.context(self.pods().await?).context(format!("typed: {command}"))),
        }
    }

    fn shell(&self, command: &str) -> Result<Launch> {
        let engines = [programs::kubectl_folder()?, programs::helm_folder()?];
        let system = std::env::split_paths("/usr/bin:/bin");
        let folders = [programs::folder()?].into_iter().chain(engines).chain(system);
        Ok(Launch::new("bash", "/bin/bash")
            .args(["-euo", "pipefail", "-c", command])
            .folder(self.scratch.path())
            .env("PATH", std::env::join_paths(folders)?)
            .env("HOME", self.scratch.path())
            .env("KUBECONFIG", self.cluster.kubeconfig()))
    }

    /// Forwards a port to one broker, as the notes of the chart say.
    async fn forward(&self, command: &str) -> Result<Process> {
        let command = command.trim_end_matches(['&', ' ']);
        let forwarding = Process::start(self.shell(&format!("exec {command}"))?, self.scratch.path())?;
        let is_open = async || TcpStream::connect(("127.0.0.1", PORT)).await.is_ok();
        forwarding.ready_when(DEADLINE, is_open).await?;
        Ok(forwarding)
    }

    async fn pods(&self) -> Result<String> {
        Ok(self.cluster.kubectl(["get", "pods", "-A", "-o", "wide"]).await?.stdout)
    }

    /// Delivers a new version, which has to become healthy.
    async fn delivers(&self, version: u32) -> Result<()> {
        let manifest = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: 2, selector: {{matchLabels: {{app: web}}}}, \
             template: {{metadata: {{labels: {{app: web}}, annotations: {{version: '{version}'}}}}, \
             spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: app, image: '{TEST_PROGRAM}', \
             args: [--serve=:8080], readinessProbe: {{httpGet: {{path: /ready, port: 8080}}}}}}]}}}}}}\n"
        );
        self.scratch.write("web.yaml", manifest)?;
        let applied =
            self.types("brokkr apply web -f web.yaml --to-agent shop-1 --wait --timeout 2m").await?;
        anyhow::ensure!(applied.stderr.contains("web is healthy on 1 agent"), "{applied:?}");
        Ok(())
    }
}

/// Returns a few megabytes of ConfigMaps.
fn large_manifest() -> String {
    let data = "0123456789abcdef".repeat(50_000);
    let config_map = |number: u32| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large-{number}, namespace: shop}}\n\
             data: {{key: {data}}}\n"
        )
    };
    (0..8).map(config_map).collect()
}

fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(name)
}

#[tokio::test]
async fn brokkr_runs_in_pods_and_recovers_from_what_happens_to_them() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let site = Site::start().await?;
    site.types("kubectl create namespace brokkr").await?;
    let secret = format!(
        "kubectl -n brokkr create secret generic database --from-literal=url='{}'",
        site.database_url().await?
    );
    site.types(&secret).await?;

    // Three commands: install, let the cluster join itself, deploy. The notes of the chart say how to log in.
    let install = format!(
        "helm install brokkr '{}' -n brokkr --set evaluation.enabled=true --set database.existingSecret.name=database \
         --wait --timeout 2m",
        chart("brokkr").display()
    );
    let installed = site.types(&install).await?.stdout;
    let (_, notes) = installed.split_once("\nNOTES:\n").context("notes")?;
    let (log_in, join) = notes.split_once("\nThen let a cluster join").context("how to log in")?;
    let commands = |text: &str| {
        text.lines().filter_map(|line| Some(line.strip_prefix("    ")?.to_owned())).collect::<Vec<_>>()
    };
    let (forward, log_in): (Vec<_>, Vec<_>) =
        commands(log_in).into_iter().partition(|line| line.contains("port-forward"));
    let forward = forward.first().context("how to reach the broker")?;
    let forwarding = site.forward(forward).await?;
    site.types(&log_in.join("\n")).await?;
    site.types(&commands(join).join("\n").replace("NAME", "shop-1").replace("REGISTRY/", "")).await?;
    site.delivers(1).await?;
    eprintln!("{}", site.pods().await?);

    // Its Pod is deleted.
    site.types("kubectl -n brokkr-system delete pod --all --wait=false").await?;
    site.delivers(2).await?;
    // Its node is drained: the Pod is evicted, and starts on the other node.
    let node = "kubectl -n brokkr-system get pods --field-selector=status.phase=Running \
                -o jsonpath='{.items[0].spec.nodeName}'";
    let node = site.types(node).await?.stdout;
    drop(forwarding);
    site.types(&format!(
        "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --force --timeout=90s"
    ))
    .await?;
    let forwarding = site.forward(forward).await?;
    site.delivers(3).await?;
    site.types(&format!("kubectl uncordon {node}")).await?;
    // It gets too little memory for a large stack, is killed again and again, and gets enough.
    let limit = |memory: &str| {
        format!(
            "kubectl -n brokkr-system set resources deployment brokkr-agent --limits=memory={memory} --requests=memory=4Mi
             kubectl -n brokkr-system rollout status deployment brokkr-agent --timeout=90s"
        )
    };
    let limits =
        "kubectl -n brokkr-system get deployment brokkr-agent -o jsonpath='{..resources.limits.memory}'";
    let limits = site.types(limits).await?.stdout;
    site.types(&limit("12Mi")).await?;
    site.scratch.write("large.yaml", large_manifest())?;
    site.types("brokkr apply large -f large.yaml --to-agent shop-1").await?;
    eventually(DEADLINE, "the agent to be killed", async || {
        let reasons = "kubectl -n brokkr-system get pods -o jsonpath='{..terminated.reason}'";
        match site.types(reasons).await {
            Ok(output) if output.stdout.contains("OOMKilled") => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    site.types(&limit(limits.trim())).await?;
    site.types("brokkr wait large --timeout 2m").await?;
    site.delivers(4).await?;
    // The kubelets and the API server are killed and started again.
    for node in site.cluster.nodes() {
        node.kubelet().kill9();
        node.kubelet().start_again()?;
    }
    site.cluster.kill_api_server()?;
    site.cluster.start_api_server().await?;
    drop(forwarding);
    let forwarding = site.forward(forward).await?;
    site.delivers(5).await?;
    // The brokers are upgraded, one after the other.
    let upgrade = install.replace("helm install", "helm upgrade") + " --set config.log=debug";
    site.types(&upgrade).await?;
    drop(forwarding);
    let _forwarding = site.forward(forward).await?;
    site.delivers(6).await?;
    // Uninstalled, it leaves the delivered Pods alone.
    site.types("helm uninstall brokkr -n brokkr --wait").await?;
    let pods = site.types("kubectl -n shop get pods --field-selector=status.phase=Running -o name").await?;
    assert_eq!(pods.stdout.lines().count(), 2, "{pods:?}");
    Ok(())
}

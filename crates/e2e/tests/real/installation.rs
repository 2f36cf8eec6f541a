//! Brokkr itself in Pods, installed with the commands of README.md and of the chart's notes, and PostgreSQL beside the cluster.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::nodes::Image;
use brokkr_testkit::nodes::images::TEST_PROGRAM;
use brokkr_testkit::process::run;
use brokkr_testkit::{Cluster, Database, Launch, Output, Postgres, Process, Scratch, programs};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub const DEADLINE: Duration = Duration::from_secs(180);
/// The port in the notes of the chart.
const PORT: u16 = 8780;

/// A terminal of a user: a folder, and a cluster with real nodes.
pub struct Terminal {
    pub cluster: Cluster,
    pub scratch: Scratch,
}

impl Terminal {
    /// Types a command, as a user does, with `brokkr`, `kubectl` and `helm` of this build.
    pub async fn types(&self, command: &str) -> Result<Output> {
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

    pub async fn pods(&self) -> Result<String> {
        Ok(self.cluster.kubectl(["get", "pods", "-A", "-o", "wide"]).await?.stdout)
    }
}

/// Broker and agent in Pods, and the first stack, which is healthy.
pub struct Installation {
    pub terminal: Terminal,
    /// The command that installed the broker.
    pub install: String,
    forward: String,
    forwarding: Option<Process>,
    // Dropped in this order: the database before its server.
    _database: Database,
    _postgres: Arc<Postgres>,
}

impl Installation {
    /// Types the three commands of README.md on two nodes.
    pub async fn start() -> Result<Self> {
        let (cluster, postgres) = tokio::try_join!(Cluster::with_real_nodes(2), Postgres::shared())?;
        for name in ["brokkr-broker", "brokkr-agent"] {
            cluster.import(&Image::brokkr(name)?).await?;
        }
        let terminal = Terminal { cluster, scratch: Scratch::new("ourselves")? };
        let database = postgres.database().await?;
        let url = reachable_from_pods(&terminal.cluster, &database.url()).await?;
        terminal.types("kubectl create namespace brokkr").await?;
        let secret = format!("kubectl -n brokkr create secret generic database --from-literal=url='{url}'");
        terminal.types(&secret).await?;
        lay_out(terminal.scratch.path())?;

        let [install, join, apply] = commands_of_readme()?;
        let started = Instant::now();
        // The image of a PostgreSQL cannot be had here, so the database is beside the cluster.
        let install = format!("{install} --set database.existingSecret.name=database --timeout 2m");
        let installed = terminal.types(&install).await?.stdout;
        let (_, notes) = installed.split_once("\nNOTES:\n").context("the chart has notes")?;
        let (log_in, joining) = notes.split_once("\nThen let a cluster join").context("how to join")?;
        ensure!(
            indented(joining) == [join.replace("shop-1", "NAME").replace("--image ", "--image REGISTRY/")]
        );
        let (forward, log_in): (Vec<_>, Vec<_>) =
            indented(log_in).into_iter().partition(|line| line.contains("port-forward"));
        let forward = forward.into_iter().next().context("how to reach the broker")?;
        let forwarding = Some(terminal.forward(&forward).await?);
        terminal.types(&log_in.join("\n")).await?;
        terminal.types(&join).await?;
        let applied = terminal.types(&apply).await?;
        ensure!(applied.stderr.contains("hello is healthy on 1 agent"), "{applied:?}");
        eprintln!("the commands of README.md took {:.0?}", started.elapsed());
        Ok(Self { terminal, install, forward, forwarding, _database: database, _postgres: postgres })
    }

    pub async fn types(&self, command: &str) -> Result<Output> {
        self.terminal.types(command).await
    }

    /// Forwards the port again, after the Pod behind it is gone.
    pub async fn forward_again(&mut self) -> Result<()> {
        self.forwarding = None;
        self.forwarding = Some(self.terminal.forward(&self.forward).await?);
        Ok(())
    }

    /// Delivers a new version, which has to become healthy.
    pub async fn delivers(&self, version: u32) -> Result<()> {
        let manifest = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{replicas: 2, selector: {{matchLabels: {{app: web}}}}, \
             template: {{metadata: {{labels: {{app: web}}, annotations: {{version: '{version}'}}}}, \
             spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: app, image: '{TEST_PROGRAM}', \
             args: [--serve=:8080], readinessProbe: {{httpGet: {{path: /ready, port: 8080}}}}}}]}}}}}}\n"
        );
        self.terminal.scratch.write("web.yaml", manifest)?;
        let applied =
            self.types("brokkr apply web -f web.yaml --to-agent shop-1 --wait --timeout 2m").await?;
        ensure!(applied.stderr.contains("web is healthy on 1 agent"), "{applied:?}");
        Ok(())
    }
}

/// Lets Pods reach PostgreSQL, which listens on the loopback address, at the address of the host. Returns its URL there.
async fn reachable_from_pods(cluster: &Cluster, url: &str) -> Result<String> {
    let inner = url
        .split_once('@')
        .and_then(|(_, rest)| rest.split_once('/'))
        .context("a database URL")?
        .0
        .to_owned();
    let listener = TcpListener::bind((cluster.host_address()?, 0)).await?;
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
    Ok(format!("{}?sslmode=disable", url.replace(&inner, &outer)))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Makes a folder look like a clone: the charts, and the example with an image that the nodes have.
fn lay_out(folder: &Path) -> Result<()> {
    symlink(root().canonicalize()?.join("charts"), folder.join("charts"))?;
    let example = folder.join("examples/hello");
    fs::create_dir_all(&example)?;
    for entry in fs::read_dir(root().join("examples/hello"))? {
        let entry = entry?;
        let manifest = fs::read_to_string(entry.path())?.replace("traefik/whoami:v1.11.0", TEST_PROGRAM);
        fs::write(example.join(entry.file_name()), manifest)?;
    }
    Ok(())
}

/// Returns the commands that README.md shows for a cluster. The images are on the nodes, and not in a registry.
fn commands_of_readme() -> Result<[String; 3]> {
    let readme = fs::read_to_string(root().join("README.md"))?;
    let (_, section) =
        readme.split_once("\n## Try it in a cluster\n").context("README.md has no such section")?;
    let (_, block) = section.split_once("```sh\n").context("no commands")?;
    let (block, _) = block.split_once("```").context("no end")?;
    let commands: Vec<String> = block.lines().map(|line| line.replace("REGISTRY/", "")).collect();
    commands.try_into().ok().context("README.md promises three commands")
}

/// Returns the commands in the notes of a chart.
fn indented(notes: &str) -> Vec<String> {
    notes.lines().filter_map(|line| Some(line.strip_prefix("    ")?.to_owned())).collect()
}

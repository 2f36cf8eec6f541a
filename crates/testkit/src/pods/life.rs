//! The life cycle of one Pod: prepare, initialise, run, restart, stop.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt as _};
use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;

use super::container::{self, Stage};
use super::volumes::Source;
use crate::cluster::{Cluster, Facts};
use crate::port::Port;
use crate::process::Process;
use crate::scratch::Scratch;

/// A kubelet would wait ten seconds and more before a restart; a test should not wait that long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const INIT_DEADLINE: Duration = Duration::from_secs(120);
/// The default grace period of a Pod.
const GRACE: Duration = Duration::from_secs(30);
/// The interval between checks whether a process still runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The cluster that Pods are in.
#[derive(Clone)]
pub(super) struct Site {
    client: Client,
    facts: Facts,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("url", &self.facts.url).finish_non_exhaustive()
    }
}

impl Site {
    pub(super) async fn of(cluster: &Cluster) -> Result<Self> {
        Ok(Self { client: cluster.admin().await?, facts: cluster.facts().clone() })
    }
}

/// A Pod of Brokkr and its processes.
#[derive(Debug)]
pub struct PodRun {
    pod: Pod,
    program: &'static str,
    ports: BTreeMap<u16, Port>,
    /// Environment variables that the node adds.
    node: Vec<(String, String)>,
    processes: Mutex<Vec<Arc<Process>>>,
    /// What the Pod is doing, as the end of a sentence that starts with the name of the Pod.
    state: Mutex<String>,
    starts: AtomicU32,
    leaving: CancellationToken,
    ended: CancellationToken,
    // Dropped after the processes that write into it.
    scratch: Scratch,
}

impl PodRun {
    pub(super) fn begin(
        site: &Site,
        pod: &Pod,
        program: &'static str,
        node: Vec<(String, String)>,
    ) -> Result<Arc<Self>> {
        let mut ports = BTreeMap::new();
        for container in containers(pod) {
            for port in container.ports.iter().flatten() {
                ports.insert(u16::try_from(port.container_port)?, Port::free()?);
            }
        }
        let run = Arc::new(Self {
            pod: pod.clone(),
            program,
            ports,
            node,
            processes: Mutex::default(),
            state: Mutex::new("is about to start".into()),
            starts: AtomicU32::new(0),
            leaving: CancellationToken::new(),
            ended: CancellationToken::new(),
            scratch: Scratch::new("pod")?,
        });
        tokio::spawn(live(run.clone(), site.clone()));
        Ok(run)
    }

    pub fn name(&self) -> String {
        self.pod.name_any()
    }

    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> String {
        self.pod.namespace().unwrap_or_default()
    }

    /// Returns its program, such as `brokkr-agent`.
    pub fn program(&self) -> &'static str {
        self.program
    }

    /// Returns whether all its containers run.
    pub fn is_running(&self) -> bool {
        let processes = self.processes();
        let wanted = containers(&self.pod).count();
        processes.len() == wanted && processes.iter().all(|process| process.is_running())
    }

    /// Returns how often a container was restarted.
    pub fn restarts(&self) -> u32 {
        let first = u32::try_from(containers(&self.pod).count()).unwrap_or_default();
        self.starts.load(Ordering::Relaxed).saturating_sub(first)
    }

    /// Returns the address of a port of the Pod, by its name: `127.0.0.1:PORT`.
    pub fn address(&self, port: &str) -> Option<String> {
        let mut ports = containers(&self.pod).flat_map(|container| container.ports.iter().flatten());
        let found = ports.find(|found| found.name.as_deref() == Some(port))?;
        let number = u16::try_from(found.container_port).ok()?;
        self.ports.get(&number).map(Port::address)
    }

    /// Returns the logs of its containers, init containers first.
    pub fn log(&self) -> String {
        let mut logs: Vec<PathBuf> = fs::read_dir(self.logs())
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        logs.sort();
        let read = |log: &PathBuf| {
            fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        logs.iter().map(read).collect::<Vec<_>>().join("\n")
    }

    /// Kills its processes without warning; they are restarted, as containers are.
    pub fn kill9(&self) {
        self.processes().iter().for_each(|process| process.kill9());
    }

    /// Describes the Pod in one paragraph, for error messages.
    pub fn describe(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("Pod {} {}; its log:\n{tail}", self.name(), self.state())
    }

    /// Marks the Pod as deleted; returns whether this is the first call.
    pub(super) fn leave(&self) -> bool {
        let is_first = !self.leaving.is_cancelled();
        self.leaving.cancel();
        is_first
    }

    pub(super) async fn stopped(&self) {
        self.ended.cancelled().await;
    }

    /// Kills all processes at the end of the test.
    pub(super) fn abandon(&self) {
        self.leaving.cancel();
        self.kill9();
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs(&self) -> PathBuf {
        self.scratch.join("logs")
    }

    fn grace(&self) -> Duration {
        let configured = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        configured.and_then(|seconds| u64::try_from(seconds).ok()).map_or(GRACE, Duration::from_secs)
    }

    fn set_state(&self, state: impl Into<String>) {
        *self.state() = state.into();
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

async fn live(run: Arc<PodRun>, site: Site) {
    tokio::select! {
        () = run.leaving.cancelled() => {}
        () = work(&run, &site) => {}
    }
    let processes = run.processes().clone();
    for process in processes {
        if process.is_running() {
            let _ = process.signal(Signal::SIGTERM);
            // Killed after the grace period, as a container is.
            let _ = end_of(&process, run.grace()).await;
        }
        process.kill9();
    }
    run.ended.cancel();
}

async fn work(run: &PodRun, site: &Site) {
    let mut pause = Pause::default();
    // A missing Secret or a failed init container is retried.
    while let Err(error) = start(run, site).await {
        run.set_state(format!("could not be started: {error:#}"));
        pause.wait().await;
    }
    run.set_state("is running");
    let processes = run.processes().clone();
    futures::future::join_all(processes.into_iter().map(|process| keep_running(run, process))).await;
}

async fn start(run: &PodRun, site: &Site) -> Result<()> {
    let source = Source { client: &site.client, pod: &run.pod };
    let spec = run.pod.spec.as_ref().context("a Pod without a spec")?;
    fs::create_dir_all(run.logs())?;
    let mut volumes = BTreeMap::new();
    for volume in spec.volumes.iter().flatten() {
        let folder = source.materialise(volume, &run.scratch.join("volumes")).await?;
        volumes.insert(volume.name.clone(), folder);
    }
    let stage =
        Stage { volumes: &volumes, ports: &run.ports, cluster: &site.facts, folder: run.scratch.path() };
    for container in spec.init_containers.iter().flatten() {
        run.set_state(format!("is waiting for {} to end", container.name));
        let launch = container::launch(&source, &stage, container).await?.envs(run.node.clone());
        let process = Process::start(launch, &run.logs())?;
        let ended = end_of(&process, INIT_DEADLINE).await?;
        ensure!(ended.success(), "{} ended with {ended}", container.name);
    }
    let mut processes = Vec::new();
    for container in &spec.containers {
        let launch = container::launch(&source, &stage, container).await?.envs(run.node.clone());
        processes.push(Arc::new(Process::start(launch, &run.logs())?));
        run.starts.fetch_add(1, Ordering::Relaxed);
    }
    *run.processes() = processes;
    Ok(())
}

/// Waits until a process has ended, by itself or after a signal.
async fn end_of(process: &Process, deadline: Duration) -> Result<ExitStatus> {
    let waiting = async {
        loop {
            match process.exit_status() {
                Some(status) => return status,
                None => tokio::time::sleep(CHECK_INTERVAL).await,
            }
        }
    };
    let timed_out = || format!("{} did not end within {deadline:?}", process.name());
    tokio::time::timeout(deadline, waiting).await.with_context(timed_out)
}

/// Restarts a process whenever it ends.
async fn keep_running(run: &PodRun, process: Arc<Process>) {
    let mut pause = Pause::default();
    loop {
        if process.is_running() {
            tokio::time::sleep(CHECK_INTERVAL).await;
            continue;
        }
        run.set_state(format!("is about to restart {}", process.name()));
        pause.wait().await;
        match process.start_again() {
            Ok(()) => {
                run.starts.fetch_add(1, Ordering::Relaxed);
                run.set_state("is running");
            }
            Err(error) => run.set_state(format!("could not restart {}: {error:#}", process.name())),
        }
    }
}

/// A pause between two attempts, which doubles up to a limit.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(SHORTEST_PAUSE)
    }
}

impl Pause {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

//! Runs Brokkr's own Pods as a kubelet would.
//!
//! In a test cluster, kwok only reports that Pods run. A [`PodRunner`] really runs the Pods with an image of Brokkr: each
//! container becomes a process with the Pod's arguments, environment, files and ServiceAccount. So a chart is tested with
//! exactly the permissions that it grants.
//!
//! Two things differ from a container, because there is no separate file system or network: a path below a
//! mount is replaced by a path in a scratch folder, and a port of the Pod by another port of the loopback
//! address. Both are rewritten in arguments and environment. `KUBECONFIG` replaces the mounted
//! ServiceAccount. Users and limits of the security context are not simulated.
//!
//! ```text
//! pods/volumes.rs     Secrets, ConfigMaps, tokens and empty folders, as folders
//! pods/container.rs   the command line of a container
//! pods/life.rs        one Pod: prepare, initialise, run, start again, stop
//! ```

mod container;
mod life;
mod volumes;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::eventually::{Attempt, eventually};
pub use life::PodRun;
use life::Site;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// Runs Brokkr's Pods of one cluster or one namespace for as long as it exists.
#[derive(Debug)]
pub struct PodRunner {
    pods: Arc<Pods>,
    watching: JoinHandle<()>,
}

impl PodRunner {
    /// Runs the Pods of all namespaces. Only for a private cluster, where no other test runs them.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        Self::watch(cluster, Api::all(cluster.admin().await?)).await
    }

    /// Runs the Pods of one namespace, which need not exist yet.
    pub async fn start_in(cluster: &Cluster, namespace: &str) -> Result<Self> {
        Self::watch(cluster, Api::namespaced(cluster.admin().await?, namespace)).await
    }

    async fn watch(cluster: &Cluster, api: Api<Pod>) -> Result<Self> {
        let (site, running, node) = (Site::of(cluster).await?, Mutex::default(), Mutex::default());
        let pods = Arc::new(Pods { site, running, node });
        let watching = tokio::spawn(follow(api, pods.clone()));
        Ok(Self { pods, watching })
    }

    /// Sets environment variables for every Pod that starts from now on, for instance a wrong clock.
    pub fn node_gives(&self, environment: Vec<(String, String)>) {
        *self.pods.node.lock().unwrap_or_else(PoisonError::into_inner) = environment;
    }

    /// Returns the current Pods.
    pub fn pods(&self) -> Vec<Arc<PodRun>> {
        self.pods.running().clone()
    }

    /// Waits for a running Pod of this program, such as `brokkr-agent`.
    pub async fn running(&self, program: &str) -> Result<Arc<PodRun>> {
        eventually(START_DEADLINE, &format!("a Pod that runs {program}"), async || {
            let pods = self.pods();
            let of_program = || pods.iter().filter(|pod| pod.program() == program);
            match of_program().find(|pod| pod.is_running()) {
                Some(pod) => Attempt::Done(pod.clone()),
                None => {
                    Attempt::NotYet(of_program().map(|pod| pod.describe()).collect::<Vec<_>>().join("\n"))
                }
            }
        })
        .await
    }

    /// Waits until no Pod and no process of this program is left.
    pub async fn gone(&self, program: &str) -> Result<()> {
        eventually(START_DEADLINE, &format!("no Pod that runs {program}"), async || {
            let pods = self.pods();
            let left: Vec<_> =
                pods.iter().filter(|pod| pod.program() == program).map(|pod| pod.describe()).collect();
            if left.is_empty() { Attempt::Done(()) } else { Attempt::NotYet(left.join("\n")) }
        })
        .await
    }
}

impl Drop for PodRunner {
    fn drop(&mut self) {
        self.watching.abort();
        for pod in self.pods.running().drain(..) {
            pod.abandon();
        }
    }
}

/// The Pods that run, and what they share.
#[derive(Debug)]
struct Pods {
    site: Site,
    running: Mutex<Vec<Arc<PodRun>>>,
    /// Environment variables that the node adds.
    node: Mutex<Vec<(String, String)>>,
}

impl Pods {
    fn running(&self) -> MutexGuard<'_, Vec<Arc<PodRun>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(self: &Arc<Self>, pod: &Pod) {
        if pod.metadata.deletion_timestamp.is_some() {
            return self.lost(&uid(pod));
        }
        let Some(program) = container::program_of(pod) else { return };
        let mut running = self.running();
        // The containers of a Pod never change.
        if running.iter().any(|known| known.uid() == uid(pod)) {
            return;
        }
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match PodRun::begin(&self.site, pod, program, node) {
            Ok(begun) => running.push(begun),
            Err(error) => eprintln!("failed to run the Pod {}: {error:#}", pod.name_any()),
        }
    }

    /// Stops a Pod; it stays in the list until its processes have ended.
    fn lost(self: &Arc<Self>, uid: &str) {
        let Some(pod) = self.running().iter().find(|pod| pod.uid() == uid).cloned() else { return };
        if !pod.leave() {
            return;
        }
        let pods = self.clone();
        tokio::spawn(async move {
            pod.stopped().await;
            pods.running().retain(|other| other.uid() != pod.uid());
        });
    }
}

async fn follow(api: Api<Pod>, pods: Arc<Pods>) {
    let mut events = pin!(kube::runtime::watcher(api, watcher::Config::default()));
    let mut listed: Vec<String> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.push(uid(&pod));
                pods.seen(&pod);
            }
            // Pods that were deleted while there was no watch.
            Ok(Event::InitDone) => {
                let known: Vec<String> = pods.running().iter().map(|pod| pod.uid().to_owned()).collect();
                known.iter().filter(|uid| !listed.contains(uid)).for_each(|uid| pods.lost(uid));
            }
            Ok(Event::Apply(pod)) => pods.seen(&pod),
            Ok(Event::Delete(pod)) => pods.lost(&uid(&pod)),
            // The watcher retries; a test may have stopped the API server.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

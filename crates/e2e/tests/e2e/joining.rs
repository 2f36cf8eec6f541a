//! `brokkr agent join` into a real cluster: the agent's Pod runs with exactly what was installed.
//!
//! ```text
//! joining/hops.rs     failures on the way to the broker: DNS, proxy, connect, TLS, clock, token
//! joining/rights.rs   missing permissions in the cluster: of the user who installs, of the agent
//! ```

mod hops;
mod rights;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::process::run;
use brokkr_testkit::{Cluster, Fleet, Launch, Output, PodRunner, programs, unique};

use brokkr_testkit::world::{WAIT_TIMEOUT, namespace_yaml};

/// An unused namespace of the shared cluster, and a runner for its Pods.
struct Site {
    fleet: Fleet,
    cluster: Arc<Cluster>,
    namespace: String,
    pods: Option<PodRunner>,
}

impl Site {
    async fn new() -> Result<Self> {
        let site = Self::without_pods().await?;
        let pods = PodRunner::start_in(&site.cluster, &site.namespace).await?;
        Ok(Self { pods: Some(pods), ..site })
    }

    /// Without a runner for Pods.
    async fn without_pods() -> Result<Self> {
        let (fleet, cluster) = (Box::pin(Fleet::start()).await?, Cluster::shared().await?);
        Ok(Self { fleet, cluster, namespace: unique("joining"), pods: None })
    }

    async fn join(&self, name: &str, further: &[&str]) -> Result<Output> {
        self.join_by(self.cluster.kubeconfig(), name, further).await
    }

    /// Joins as the user of this kubeconfig.
    async fn join_by(&self, kubeconfig: &Path, name: &str, further: &[&str]) -> Result<Output> {
        let kubeconfig = kubeconfig.display().to_string();
        let command = ["agent", "join", name, "--kubeconfig", &kubeconfig, "--namespace", &self.namespace];
        self.fleet.brokkr(command.iter().chain(further).copied()).await
    }

    fn describe_pods(&self) -> String {
        self.pods.iter().flat_map(PodRunner::pods).map(|pod| pod.describe()).collect()
    }

    /// Requires that a join fails at this step, with a reason and the next step.
    async fn stops(&self, hop: &str, words: &[&str], further: &[&str]) -> Result<()> {
        let mut explained = Ok(());
        // A failed join always lasts as long as its timeout. A machine that stalls needs the longer one.
        for timeout in ["15s", "2m"] {
            let failed = self.join("shop", &[further, &["--timeout", timeout]].concat()).await?;
            explained = assert_explained(&failed, hop, words).with_context(|| self.describe_pods());
            if explained.is_ok() {
                break;
            }
        }
        explained
    }

    async fn succeeds(&self, further: &[&str]) -> Result<()> {
        let joined = self.join("shop", further).await?.ok().with_context(|| self.describe_pods())?;
        assert!(joined.stdout.contains("agent shop has joined"), "{joined:?}");
        Ok(())
    }
}

fn assert_explained(failed: &Output, hop: &str, words: &[&str]) -> Result<()> {
    let stderr = &failed.stderr;
    ensure!(failed.code == 3 && stderr.contains(&format!("failed at step {hop}\n")), "{hop}: {failed:?}");
    for word in words {
        ensure!(stderr.contains(word), "{hop}: {word:?} is not in {stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn one_command_joins_a_cluster_and_a_delivered_stack_is_healthy() -> Result<()> {
    let site = Site::new().await?;
    let joined = site.join("shop", &["--label", "env=prod", "--label", "region=eu"]).await?;
    let joined = joined.ok().with_context(|| site.describe_pods())?;
    assert!(joined.stdout.contains("agent shop has joined"), "{joined:?}");
    assert!(
        joined.stderr.contains("next: brokkr apply STACK -f DIRECTORY --to env=prod --wait"),
        "{joined:?}"
    );
    let space = unique("joined");
    site.fleet.apply("web", "env=prod,region=eu", &namespace_yaml(&space)).await?;
    let second = site.join("other", &[]).await?;
    assert_eq!(second.code, 6, "one agent per namespace: {second:?}");
    assert!(
        second.stderr.contains("already has an agent") && second.stderr.contains("--rejoin"),
        "{second:?}"
    );

    // A lost key can be replaced.
    site.fleet.brokkr(["agent", "revoke", "shop", "--yes"]).await?.ok()?;
    site.join("shop", &["--rejoin"]).await?.ok().with_context(|| site.describe_pods())?;
    site.fleet.brokkr(["stack", "delete", "web", "--yes", "--wait"]).await?.ok()?;

    // Joining again with fewer permissions removes the others.
    let rights = format!("brokkr.io/rights-of={}", site.namespace);
    let bound = ["get", "clusterrolebindings", "-o", "name", "-l", &rights];
    assert_eq!(
        site.cluster.kubectl(bound).await?.ok()?.stdout.lines().count(),
        3,
        "for records, for all namespaces, and for what is in them"
    );
    let sessions =
        async || anyhow::Ok(site.fleet.agent("shop").await?.and_then(|it| it["session_count"].as_i64()));
    let before = sessions().await?;
    let narrow = ["--rejoin", "--profile", "namespaces", "--target-namespace", "default"];
    site.join("shop", &narrow).await?.ok().with_context(|| site.describe_pods())?;
    assert!(sessions().await? > before, "a report of the earlier agent must not count as the new one's");
    let bound = site.cluster.kubectl(bound).await?.ok()?.stdout;
    assert!(bound.contains("brokkr-agent-records") && bound.lines().count() == 1, "{bound}");
    Ok(())
}

#[tokio::test]
async fn printed_manifests_can_be_applied_elsewhere() -> Result<()> {
    let site = Site::new().await?;
    let printed = site.join("shop", &["--label", "env=prod", "--print"]).await?.ok()?;
    let script = site.fleet.cli.file("join", &printed.stdout)?;
    let kubectl = programs::kubectl_folder()?;
    let paste = Launch::new("bash", "/bin/bash")
        .arg(script)
        .env("PATH", format!("{}:/usr/bin:/bin", kubectl.display()))
        .env("KUBECONFIG", site.cluster.kubeconfig());
    run(paste, WAIT_TIMEOUT).await?.ok()?;
    site.fleet.active("shop").await.with_context(|| site.describe_pods())?;
    assert!(printed.stderr.contains("which inside a cluster is the Pod itself"), "{printed:?}");
    // Without a cluster, the manifests are printed.
    let no_cluster = ["agent", "join", "far", "--kubeconfig", "/dev/null"];
    let no_cluster = site.fleet.brokkr(no_cluster).await?.ok()?;
    assert!(
        no_cluster.stdout.starts_with("kubectl apply ") && no_cluster.stdout.contains("kind: Deployment")
    );
    assert!(no_cluster.stderr.contains("kubectl cannot reach a cluster"), "{no_cluster:?}");
    Ok(())
}

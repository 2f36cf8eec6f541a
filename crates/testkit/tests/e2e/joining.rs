//! `brokkr agent join` into a real cluster: the agent's Pod runs with exactly what was installed, and where it stops is told.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use brokkr_testkit::process::run;
use brokkr_testkit::{Cluster, Fleet, Launch, Output, PodRunner, Port, unique};

use crate::world::{PATIENCE, namespace};

/// A place in the shared cluster that no agent lives in yet, and somebody who runs the Pods there.
struct Site {
    fleet: Fleet,
    cluster: Arc<Cluster>,
    namespace: String,
    pods: PodRunner,
}

impl Site {
    async fn new() -> Result<Self> {
        let (fleet, cluster) = (Box::pin(Fleet::start()).await?, Cluster::shared().await?);
        let namespace = unique("joining");
        let pods = PodRunner::start_in(&cluster, &namespace).await?;
        Ok(Self { fleet, cluster, namespace, pods })
    }

    async fn join(&self, name: &str, further: &[&str]) -> Result<Output> {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let place = ["agent", "join", name, "--kubeconfig", &kubeconfig, "--namespace", &self.namespace];
        self.fleet.brokkr(place.iter().chain(further).copied()).await
    }

    fn told(&self) -> String {
        self.pods.pods().iter().map(|pod| pod.told()).collect()
    }
}

#[tokio::test]
async fn one_command_joins_a_cluster_and_what_it_delivers_there_is_healthy() -> Result<()> {
    let site = Site::new().await?;
    let joined = site.join("shop", &["-l", "env=prod", "-l", "region=eu"]).await?;
    let joined = joined.ok().with_context(|| site.told())?;
    assert!(joined.stdout.contains("agent shop has joined"), "{joined:?}");
    assert!(
        joined.stderr.contains("next: brokkr apply -f FOLDER --stack NAME --to env=prod --wait"),
        "{joined:?}"
    );
    let space = unique("joined");
    site.fleet.apply("web", "env=prod,region=eu", &namespace(&space)).await?;
    let second = site.join("other", &[]).await?;
    assert_eq!(second.code, 6, "one agent lives in a place: {second:?}");
    assert!(
        second.stderr.contains("has an agent already") && second.stderr.contains("--rejoin"),
        "{second:?}"
    );

    // A key that was lost is no reason to start over.
    site.fleet.brokkr(["agent", "revoke", "shop", "--yes"]).await?.ok()?;
    site.join("shop", &["--rejoin"]).await?.ok().with_context(|| site.told())?;
    site.fleet.brokkr(["delete", "stack", "web", "--yes", "--wait"]).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn what_is_printed_can_be_pasted_elsewhere() -> Result<()> {
    let site = Site::new().await?;
    let printed = site.join("shop", &["-l", "env=prod", "--print"]).await?.ok()?;
    let script = site.fleet.cli.file("join", &printed.stdout)?;
    let engines = brokkr_engines::locate()?;
    let kubectl = engines.binary("kubectl").parent().context("a folder")?;
    let paste = Launch::new("bash", "/bin/bash")
        .arg(script)
        .env("PATH", format!("{}:/usr/bin:/bin", kubectl.display()))
        .env("KUBECONFIG", site.cluster.kubeconfig());
    run(paste, PATIENCE).await?.ok()?;
    site.fleet.active("shop").await.with_context(|| site.told())?;
    // Nowhere to install is no failure, either: the same block comes out.
    let nowhere = ["agent", "join", "far", "--kubeconfig", "/dev/null"];
    let nowhere = site.fleet.brokkr(nowhere).await?.ok()?;
    assert!(nowhere.stdout.starts_with("kubectl apply ") && nowhere.stdout.contains("kind: Deployment"));
    assert!(nowhere.stderr.contains("no cluster can be reached from here"), "{nowhere:?}");
    Ok(())
}

#[tokio::test]
async fn the_hop_at_which_a_join_stopped_is_named_with_what_to_do() -> Result<()> {
    let port = Port::free()?;
    let closed = format!("https://{}", port.address());
    let stranger = Cluster::shared().await?;
    let cases: [(&str, &str, &[&str], &str); 4] = [
        ("dns", "lookup", &["--broker-url", "https://broker.invalid"], "--broker-url"),
        ("connect", "refused", &["--broker-url", &closed], "firewall"),
        // Somebody else answers there, by the word of an authority that nobody trusts.
        ("tls", "certificate", &["--broker-url", stranger.url()], "--ca-file"),
        ("token", "join token", &["--ttl", "1s"], "run the command again"),
    ];
    for (hop, reason, further, next) in cases {
        let site = Site::new().await?;
        let failed = site.join("shop", &[further, &["--timeout", "6s"]].concat()).await?;
        assert_eq!(failed.code, 3, "{hop}: {failed:?}\n{}", site.told());
        let told = &failed.stderr;
        assert!(told.contains(&format!("it stopped at {hop}")), "{hop}: {told}\n{}", site.told());
        assert!(told.contains(reason) && told.contains(next), "{hop}: {told}");
    }
    Ok(())
}

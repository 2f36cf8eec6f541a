//! A version that crash-loops, on three clusters with real Pods: it stops at the first one, the others are untouched, and one command
//! rolls back.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::nodes::skipped;
use brokkr_testkit::{Agent, Attempt, Cluster, Fleet, Output, eventually, unique};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::site::{DEADLINE, deployment, runs};

/// Three agents, each with a cluster of its own.
struct Shops {
    fleet: Fleet,
    shops: Vec<(Agent, Arc<Cluster>)>,
    namespace: String,
}

impl Shops {
    async fn start() -> Result<Self> {
        let (first, second, third) = tokio::try_join!(
            Cluster::shared_real(),
            Cluster::with_real_nodes(1),
            Cluster::with_real_nodes(1)
        )?;
        let fleet = Fleet::start().await?;
        let mut shops = Vec::new();
        for (name, cluster) in
            ["shop-1", "shop-2", "shop-3"].into_iter().zip([first, second.into(), third.into()])
        {
            shops.push((fleet.join(name, &[("env", "test")], &cluster).await?, cluster));
        }
        Ok(Self { fleet, shops, namespace: unique("rollout") })
    }

    fn manifest(&self, arguments: &str) -> String {
        let namespace = &self.namespace;
        let objects = deployment(&runs(arguments)).replace("NAMESPACE", namespace);
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\n{objects}")
    }

    /// Returns the agents that have this version, or the same one after a roll-back, by name.
    async fn with_version(&self, version: u64) -> Result<Vec<String>> {
        let rows = self.fleet.brokkr_json(&["status", "web"]).await?;
        let rows = rows["items"].as_array().context("rows")?;
        let has = |row: &&Value| row["sequence_id"].as_u64() == Some(version);
        Ok(rows.iter().filter(has).filter_map(|row| Some(row["agent_name"].as_str()?.to_owned())).collect())
    }

    /// Returns the uids of the Pods of one shop: they change if anything in the Pods does.
    async fn pods(&self, shop: usize) -> Result<String> {
        let uids = ["-n", &self.namespace, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"];
        Ok(self.shops[shop].1.kubectl(uids).await?.ok()?.stdout)
    }

    async fn brokkr(&self, command: &str) -> Result<Output> {
        self.fleet.brokkr(command.split_whitespace()).await
    }

    /// Waits until the broker has noticed that this agent is gone. One that is gone since just after a release is bad.
    async fn missed(&self, agent: &str) -> Result<()> {
        eventually(DEADLINE, &format!("{agent} to be late"), async || {
            let shown = self.fleet.get(&format!("/api/v1/agents/{agent}")).await?;
            ensure!(
                ["late", "silent"].contains(&shown["presence"].as_str().unwrap_or_default()),
                "{shown:#}"
            );
            anyhow::Ok(())
        })
        .await
    }

    /// Waits until the rollout of this version is complete.
    async fn complete(&self, version: u64) -> Result<()> {
        eventually(DEADLINE * 3, &format!("the rollout of {version} to be complete"), async || {
            let rollout = self.fleet.get(&format!("/api/v1/rollouts/{version}")).await?;
            ensure!(rollout["state"] == "completed", "{rollout:#}");
            anyhow::Ok(())
        })
        .await
    }

    /// Waits until exactly these many agents have no Deployment any more.
    async fn gone(&self, count: usize) -> Result<()> {
        eventually(DEADLINE, &format!("{count} agents without the stack"), async || {
            let mut gone = 0;
            for (_, cluster) in &self.shops {
                let found = ["get", "namespace", &self.namespace, "--ignore-not-found", "-o", "name"];
                gone += usize::from(cluster.kubectl(found).await?.ok()?.stdout.trim().is_empty());
            }
            ensure!(gone == count, "{gone}");
            anyhow::Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits until agents are late, and for two minutes without a crash; .ci/nightly runs it"]
async fn h3_h4_h6_h8_a_crash_loop_stops_at_the_first_of_three_clusters() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let site = Box::pin(Shops::start()).await?;
    site.fleet.apply("web", "env=test", &site.manifest("--serve=:8080")).await?;
    let before = [site.pods(0).await?, site.pods(1).await?, site.pods(2).await?];

    let bad = site.manifest("--say=no DATABASE_URL, --exit=3");
    let stopped = site.fleet.try_apply("web", "env=test", &bad, "5m").await?;
    assert_eq!(stopped.code, 3, "{stopped:?}");
    assert!(
        stopped.stderr.contains("the rollout of web 2 is stopped: 1 agent is bad, 0 allowed"),
        "{stopped:?}"
    );
    let canary = site.with_version(2).await?;
    assert_eq!(canary.len(), 1, "{canary:?}");
    let others: Vec<usize> = (0..3).filter(|shop| site.shops[*shop].0.name() != canary[0]).collect();
    for shop in &others {
        assert_eq!(site.pods(*shop).await?, before[*shop], "its Pods are the same");
        let why = site.brokkr(&format!("why web --agent {}", site.shops[*shop].0.name())).await?.stdout;
        assert!(why.contains("the rollout of version 2 was stopped: 1 agent is bad"), "{why}");
    }

    // One of the others is offline while the version is rolled back.
    let (offline, _) = &site.shops[others[0]];
    offline.process().kill9();
    site.missed(offline.name()).await?;
    site.brokkr("rollback web --reason crashes").await?.ok()?;
    let first = eventually(DEADLINE, "the first agent to have the version of the roll-back", async || {
        match site.with_version(3).await {
            Ok(agents) if !agents.is_empty() => Attempt::Done(agents),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert_eq!(first, canary, "it had the bad version");
    // After a crash, healthy means two minutes without another one.
    site.complete(3).await?;
    assert_eq!(site.with_version(3).await?.len(), 2, "the two that are connected");
    let again = site.fleet.try_apply("web", "env=test", &bad, "10s").await?;
    assert!(again.code == 6 && again.stderr.contains("BRK2011"), "the bad content is barred: {again:?}");
    offline.start()?;
    eventually(DEADLINE, "the third agent to have the version of the roll-back", async || {
        match site.with_version(3).await {
            Ok(agents) if agents.len() == 3 => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert_eq!(site.pods(others[0]).await?, before[others[0]], "it never had the bad version");

    // A deletion that is stopped half-way.
    site.brokkr("stack delete web --yes --waves 1,100% --soak 1h").await?.ok()?;
    site.gone(1).await?;
    site.brokkr("rollout stop web --reason mistake").await?.ok()?;
    site.brokkr("rollback web 3").await?.ok()?;
    site.complete(5).await?;
    site.gone(0).await?;

    // H8: a window that opens. Until then, no Pod of any cluster is replaced.
    let before = [site.pods(0).await?, site.pods(1).await?, site.pods(2).await?];
    let opens = Timestamp::now() + SignedDuration::from_secs(45);
    site.brokkr(&format!("window freeze stocktaking --from 2026-01-01T00:00:00Z --until {opens}"))
        .await?
        .ok()?;
    let next = site.manifest("--serve=:8081");
    let waiting = site.fleet.try_apply("web", "env=test", &next, "10s").await?;
    assert_eq!(waiting.code, 124, "{waiting:?}");
    for (shop, before) in before.iter().enumerate() {
        let why = site.brokkr(&format!("why web --agent {}", site.shops[shop].0.name())).await?.stdout;
        assert!(why.contains("version 6 waits for the end of the freeze stocktaking"), "{why}");
        assert_eq!(&site.pods(shop).await?, before, "its Pods are the same");
    }
    assert!(Timestamp::now() < opens, "all of this was before the window opened");
    site.complete(6).await?;
    assert!(Timestamp::now() >= opens);
    for (shop, before) in before.iter().enumerate() {
        assert_ne!(&site.pods(shop).await?, before, "it has the version");
    }
    Ok(())
}

//! The starting point of every row: the shared world, with the agent behind two fault proxies, a namespace that Brokkr does
//! not manage, and a foreign object in it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::audit::Mark;
use brokkr_testkit::proxy::{Action, CannedResponse, Exchange, Matcher};
pub use brokkr_testkit::world::{AGENT, WAIT_TIMEOUT, config_map_yaml, uid_and_version};
use brokkr_testkit::{AgentOptions, Attempt, Cluster, FaultProxy, Fleet, World, eventually};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

/// Names of ConfigMaps and the value of each.
pub type Values = BTreeMap<String, String>;

/// A [`World`] with an agent that reaches its API server and its broker only through proxies.
pub struct FaultWorld {
    // Dropped in this order: the agent before the proxies.
    world: World,
    /// Between the agent and its API server.
    pub api_proxy: FaultProxy,
    /// Between the agent and its broker.
    pub broker_proxy: FaultProxy,
    /// Part of every name that Brokkr may change in this row, and of no other.
    pub tag: String,
    pub started: Mark,
    foreign: (Option<String>, Option<String>),
}

impl Deref for FaultWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl FaultWorld {
    pub async fn start() -> Result<Self> {
        Self::start_in(Cluster::shared().await?).await
    }

    pub async fn start_in(cluster: Arc<Cluster>) -> Result<Self> {
        let api_proxy = FaultProxy::of_cluster(&cluster).await?;
        Self::start_behind(api_proxy, cluster).await
    }

    /// Starts an agent that reaches the API servers of the cluster through this proxy.
    pub async fn start_behind(api_proxy: FaultProxy, cluster: Arc<Cluster>) -> Result<Self> {
        let fleet = Fleet::start().await?;
        let broker_proxy = FaultProxy::of_broker(&fleet).await?;
        let started = cluster.audit().mark()?;
        let namespace = brokkr_testkit::unique("row");
        let tag = namespace.trim_start_matches("row-").to_owned();
        let options = AgentOptions {
            broker_url: Some(broker_proxy.url().to_owned()),
            api_server: Some(api_proxy.route()),
            // Custom kinds have to be allowed by an administrator.
            install: vec![format!("--kind=*.{tag}.faults.example")],
            ..Default::default()
        };
        let world = World { namespace, ..World::start_in(cluster, fleet, &options).await? };
        world.create_namespace().await?;
        let foreign = uid_and_version(&world.apply_foreign("theirs").await?);
        Ok(Self { world, api_proxy, broker_proxy, tag, started, foreign })
    }

    /// Makes the API server refuse streaming lists, as one without that feature does.
    pub fn refuse_streaming_lists(&self) {
        let streaming = Matcher::new(|request| request.query.contains("sendInitialEvents=true"));
        let refusal = CannedResponse::refusal(422, "Invalid", "sendInitialEvents is forbidden for watch");
        self.api_proxy.when(streaming, Action::Respond(refusal));
    }

    /// Waits until a watch on this resource has begun since the mark.
    pub async fn wait_for_watch(&self, resource: &str, mark: usize) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("a watch on {resource}"), async || {
            self.api_proxy.since(mark).iter().any(|exchange| {
                let request = &exchange.request;
                request.is_watch() && request.is_about(resource) && exchange.client_status == Some(200)
            })
        })
        .await
    }

    // ── delivery ──

    /// Submits ConfigMaps, and waits until they are applied and the agent is idle.
    pub async fn deliver(&self, config_maps: &[(&str, &str)]) -> Result<()> {
        self.submit(config_maps).await?;
        self.wait_until_converged(config_maps).await
    }

    pub async fn submit(&self, config_maps: &[(&str, &str)]) -> Result<()> {
        self.fleet.submit("web", "env=prod", &self.config_maps_yaml(config_maps)).await?;
        Ok(())
    }

    pub async fn delete_stack(&self) -> Result<()> {
        self.fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
        Ok(())
    }

    // ── the cluster and the reports ──

    /// Returns the ConfigMaps of the namespace that have Brokkr's label.
    pub async fn managed_config_maps(&self) -> Result<Values> {
        let managed = ListParams::default().labels("brokkr.io/agent");
        let maps = self.config_maps().list(&managed).await?;
        let value = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("value").cloned());
        Ok(maps.items.iter().map(|map| (map.name_any(), value(map).unwrap_or_default())).collect())
    }

    /// Returns how often a transition of the newest deployment object was reported.
    pub async fn count_reported(&self, stack: &str, transition: &str) -> Result<usize> {
        let newest = self.fleet.get(&format!("/api/v1/stacks/{stack}")).await?["sequence_id"].clone();
        let events = self.events(stack).await?;
        let counts = |event: &&Value| event["transition"] == transition && event["sequence_id"] == newest;
        Ok(events.iter().filter(counts).count())
    }

    /// Returns the names of this agent's records.
    pub async fn record_names(&self) -> Result<Vec<String>> {
        let agent = self.fleet.agent(AGENT).await?.unwrap_or_default()["id"].clone();
        let list: Value =
            self.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "json"]).await?.ok()?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let own = items.iter().filter(|item| item["spec"]["agentId"] == agent);
        Ok(own.filter_map(|item| item["metadata"]["name"].as_str().map(ToOwned::to_owned)).collect())
    }

    /// Returns the agent's write requests since the mark, except those to its own namespace.
    pub fn writes_since(&self, mark: usize) -> Vec<Exchange> {
        let own = |exchange: &Exchange| {
            let path = exchange.request.resource.as_ref();
            path.is_some_and(|path| path.namespace.as_deref() == Some(self.agent.namespace()))
        };
        let all = self.api_proxy.since(mark).into_iter();
        all.filter(|exchange| exchange.request.is_write() && !own(exchange)).collect()
    }

    // ── what must hold after the fault ──

    /// Waits until the stack `web` has exactly these ConfigMaps, the broker knows it, and the agent has stopped writing.
    pub async fn wait_until_converged(&self, config_maps: &[(&str, &str)]) -> Result<()> {
        self.wait_until_converged_within(WAIT_TIMEOUT, config_maps).await
    }

    pub async fn wait_until_converged_within(
        &self,
        timeout: Duration,
        config_maps: &[(&str, &str)],
    ) -> Result<()> {
        let expected: Values =
            config_maps.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        eventually(timeout, "exactly the delivered objects to exist", async || {
            match self.managed_config_maps().await {
                Ok(live) if live == expected => Attempt::Done(()),
                other => Attempt::NotYet(format!("live {other:?}, expected {expected:?}")),
            }
        })
        .await?;
        self.wait_until_reported_healthy_within(timeout, "web").await?;
        self.wait_until_idle().await
    }

    /// Waits until the newest deployment object has been reported healthy.
    pub async fn wait_until_reported_healthy(&self, stack: &str) -> Result<()> {
        self.wait_until_reported_healthy_within(WAIT_TIMEOUT, stack).await
    }

    async fn wait_until_reported_healthy_within(&self, timeout: Duration, stack: &str) -> Result<()> {
        eventually(timeout, &format!("{stack} to be reported healthy"), async || {
            match self.count_reported(stack, "healthy").await {
                Ok(count) if count > 0 => Attempt::Done(()),
                _ => Attempt::NotYet(format!("{:?}", self.statuses(stack).await)),
            }
        })
        .await
    }

    /// Waits until neither an object with Brokkr's label nor a record is left.
    pub async fn wait_until_deleted(&self) -> Result<()> {
        eventually(WAIT_TIMEOUT, "nothing to be left", async || {
            let live = self.managed_config_maps().await?;
            let records = self.record_names().await?;
            anyhow::ensure!(live.is_empty() && records.is_empty(), "{live:?}, {records:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the agent has polled twice without writing.
    pub async fn wait_until_idle(&self) -> Result<()> {
        eventually(WAIT_TIMEOUT, "the agent to become idle", async || {
            let (api, broker) = (self.api_proxy.mark(), self.broker_proxy.mark());
            self.wait_for_polls_since(broker, 2, |poll| poll.client_status.is_some()).await?;
            let writes: Vec<_> = self.writes_since(api).iter().map(summary).collect();
            anyhow::ensure!(writes.is_empty(), "still writing: {writes:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the agent has polled its broker `count` more times, with any response or none.
    pub async fn wait_for_polls(&self, count: usize) -> Result<()> {
        self.wait_for_polls_since(self.broker_proxy.mark(), count, |_| true).await
    }

    async fn wait_for_polls_since(
        &self,
        mark: usize,
        count: usize,
        test: impl Fn(&Exchange) -> bool,
    ) -> Result<()> {
        eventually(WAIT_TIMEOUT, "the agent to poll", async || {
            let polls = self.broker_proxy.since(mark);
            let is_poll = |poll: &&Exchange| poll.request.path.ends_with("/target-state") && test(poll);
            polls.iter().filter(is_poll).count() >= count
        })
        .await
    }

    /// Checks the invariants that hold in spite of every fault.
    pub async fn assert_invariants(&self) -> Result<()> {
        crate::invariants::assert_all(self).await?;
        let foreign = self.config_map("theirs").await?.context("S1: a foreign object was deleted")?;
        assert_eq!(uid_and_version(&foreign), self.foreign, "S1: a foreign object was changed");
        Ok(())
    }
}

/// Returns one request in a line.
pub fn summary(exchange: &Exchange) -> String {
    let Exchange { request, server_status, client_status, .. } = exchange;
    format!("{} {} → server {server_status:?}, client {client_status:?}", request.method, request.path)
}

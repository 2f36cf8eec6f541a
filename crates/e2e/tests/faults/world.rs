//! What every row starts from: a real fleet, one agent that reaches its API server and its broker only through
//! proxies, a namespace that is not Brokkr's, and something foreign in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::audit::Mark;
use brokkr_testkit::proxy::{Action, Canned, Exchange, Matcher};
use brokkr_testkit::{Agent, AgentOptions, Cluster, FaultProxy, Fleet, Look, eventually, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Generous: the machine is small and shared. Nothing waits longer than it has to.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Names of ConfigMaps and the value that each has.
pub type Maps = BTreeMap<String, String>;

pub struct World {
    // Dropped in this order: the agent before what it talks to.
    pub shop: Agent,
    /// Between the agent and its API server.
    pub api: FaultProxy,
    /// Between the agent and its broker.
    pub link: FaultProxy,
    pub fleet: Fleet,
    pub cluster: Arc<Cluster>,
    pub client: Client,
    /// The namespace of this row. Made by the row, so not Brokkr's.
    pub space: String,
    /// What is in every name that is ours to change, and in no other.
    pub tag: String,
    pub started: Mark,
    foreign: (Option<String>, Option<String>),
}

impl World {
    pub async fn start() -> Result<Self> {
        Self::start_in(Cluster::shared().await?).await
    }

    pub async fn start_in(cluster: Arc<Cluster>) -> Result<Self> {
        let fleet = Fleet::start().await?;
        let (api, link) = (FaultProxy::of_cluster(&cluster).await?, FaultProxy::of_broker(&fleet).await?);
        let started = cluster.audit().mark()?;
        let space = unique("row");
        let tag = space.trim_start_matches("row-").to_owned();
        let options = AgentOptions {
            broker_url: Some(link.url().to_owned()),
            api_server: Some(api.route()),
            // Custom kinds are an administrator's to allow.
            install: vec![format!("--kind=*.{tag}.faults.example")],
            ..Default::default()
        };
        let shop = fleet.join_with("shop-1", &[("env", "prod")], &cluster, &options).await?;
        let client = cluster.admin().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": space}}))?;
        namespaces.create(&Default::default(), &namespace).await?;
        let mut world =
            Self { shop, api, link, fleet, cluster, client, space, tag, started, foreign: (None, None) };
        world.foreign = footprint(&world.put_foreign("theirs").await?);
        Ok(world)
    }

    /// Lists are asked for as lists, not as the beginning of a watch: an API server that knows no better.
    pub fn without_streaming(&self) {
        let streaming = Matcher::new(|asked| asked.query.contains("sendInitialEvents=true"));
        let refusal = Canned::refusal(422, "Invalid", "sendInitialEvents is forbidden for watch");
        self.api.when(streaming, Action::Answer(refusal));
    }

    /// Waits until a watch on this resource has begun since the mark.
    pub async fn watching(&self, resource: &str, mark: usize) -> Result<()> {
        eventually(PATIENCE, &format!("a watch on {resource}"), async || {
            let begun = |exchange: &Exchange| exchange.asked.is_watch() && exchange.told == Some(200);
            self.api.since(mark).iter().any(|exchange| begun(exchange) && exchange.asked.is_about(resource))
        })
        .await
    }

    // ── what is delivered ──

    /// ConfigMaps with these values.
    pub fn yaml(&self, maps: &[(&str, &str)]) -> String {
        maps.iter().map(|(name, value)| configmap(&self.space, name, value)).collect()
    }

    /// Delivers ConfigMaps, waits until they are there and the agent is at rest.
    pub async fn deliver(&self, maps: &[(&str, &str)]) -> Result<()> {
        self.submit(maps).await?;
        self.converged(maps).await
    }

    pub async fn submit(&self, maps: &[(&str, &str)]) -> Result<()> {
        self.fleet.submit("web", "env=prod", &self.yaml(maps)).await?;
        Ok(())
    }

    pub async fn delete_stack(&self) -> Result<()> {
        self.fleet.brokkr(["delete", "stack", "web", "--yes"]).await?.ok()?;
        Ok(())
    }

    // ── what is there ──

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.space)
    }

    pub async fn put_foreign(&self, name: &str) -> Result<ConfigMap> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.space}, "data": {"value": "theirs"},
        });
        let parameters = PatchParams::apply("somebody-else").force();
        Ok(self.maps().patch(name, &parameters, &Patch::Apply(&map)).await?)
    }

    pub async fn map(&self, name: &str) -> Result<Option<ConfigMap>> {
        Ok(self.maps().get_opt(name).await?)
    }

    pub async fn value(&self, name: &str) -> Result<Option<String>> {
        Ok(self.map(name).await?.and_then(|map| map.data?.get("value").cloned()))
    }

    pub async fn edit(&self, name: &str, value: &str) -> Result<()> {
        let patch = json!({"data": {"value": value}});
        self.maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The ConfigMaps here that carry Brokkr's label.
    pub async fn live(&self) -> Result<Maps> {
        let ours = ListParams::default().labels("brokkr.io/agent");
        let maps = self.maps().list(&ours).await?;
        let value = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("value").cloned());
        Ok(maps.items.iter().map(|map| (map.name_any(), value(map).unwrap_or_default())).collect())
    }

    pub async fn sees_value(&self, name: &str, wanted: &str) -> Result<()> {
        eventually(PATIENCE, &format!("ConfigMap {name} to have the value {wanted}"), async || {
            match self.value(name).await {
                Ok(Some(value)) if value == wanted => Look::Yes(()),
                other => Look::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    // ── what was said ──

    pub async fn statuses(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/stacks/{stack}/status")).await?;
        page["items"].as_array().cloned().context("a list of statuses")
    }

    pub async fn status(&self, stack: &str, what: &str, good: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(PATIENCE, &format!("{stack}: {what}"), async || match self.statuses(stack).await {
            Ok(items) => match items.iter().find(|item| good(item)) {
                Some(item) => Look::Yes(item.clone()),
                None => Look::NotYet(format!("{items:?}")),
            },
            Err(error) => Look::NotYet(format!("{error:#}")),
        })
        .await
    }

    pub async fn events(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/events?stack={stack}&limit=500")).await?;
        page["items"].as_array().cloned().context("a list of events")
    }

    /// How often each transition of the newest deployment object was told.
    pub async fn told(&self, stack: &str, transition: &str) -> Result<usize> {
        let newest = self.fleet.get(&format!("/api/v1/stacks/{stack}")).await?["sequence_id"].clone();
        let events = self.events(stack).await?;
        let counts = |event: &&Value| event["transition"] == transition && event["sequence_id"] == newest;
        Ok(events.iter().filter(counts).count())
    }

    // ── what has to hold after ──

    /// The stack `web` is exactly this, the broker knows it, and the agent writes nothing any more.
    pub async fn converged(&self, maps: &[(&str, &str)]) -> Result<()> {
        let wanted: Maps = maps.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        eventually(PATIENCE, "exactly what is wanted to be there", async || match self.live().await {
            Ok(live) if live == wanted => Look::Yes(()),
            other => Look::NotYet(format!("live {other:?}, wanted {wanted:?}")),
        })
        .await?;
        self.told_healthy("web").await?;
        self.at_rest().await
    }

    /// The newest deployment object was reported healthy.
    pub async fn told_healthy(&self, stack: &str) -> Result<()> {
        eventually(PATIENCE, &format!("{stack} to be reported healthy"), async || {
            match self.told(stack, "healthy").await {
                Ok(told) if told > 0 => Look::Yes(()),
                _ => Look::NotYet(format!("{:?}", self.statuses(stack).await)),
            }
        })
        .await
    }

    /// The stack is gone: nothing with Brokkr's label is left here, nor a record.
    pub async fn gone(&self) -> Result<()> {
        eventually(PATIENCE, "nothing to be left", async || {
            let live = self.live().await?;
            let records = self.records().await?;
            anyhow::ensure!(live.is_empty() && records.is_empty(), "{live:?}, {records:?}");
            Ok(())
        })
        .await
    }

    /// Names of this agent's records.
    pub async fn records(&self) -> Result<Vec<String>> {
        let agent = self.fleet.agent("shop-1").await?.unwrap_or_default()["id"].clone();
        let list: Value =
            self.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "json"]).await?.ok()?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let own = items.iter().filter(|item| item["spec"]["agentId"] == agent);
        Ok(own.filter_map(|item| item["metadata"]["name"].as_str().map(ToOwned::to_owned)).collect())
    }

    /// The agent polls on, and writes nothing.
    pub async fn at_rest(&self) -> Result<()> {
        eventually(PATIENCE, "the agent to come to rest", async || {
            let (api, link) = (self.api.mark(), self.link.mark());
            self.polls_since(link, 2).await?;
            let writes: Vec<_> = self.writes(api).iter().map(brief).collect();
            anyhow::ensure!(writes.is_empty(), "still writing: {writes:?}");
            Ok(())
        })
        .await
    }

    async fn polls_since(&self, mark: usize, count: usize) -> Result<()> {
        eventually(PATIENCE, "the agent to poll", async || {
            let polls = self.link.since(mark).into_iter();
            let answered =
                polls.filter(|poll| poll.asked.path.ends_with("/target-state") && poll.told.is_some());
            answered.count() >= count
        })
        .await
    }

    /// Waits until the agent has polled its broker so often from now on, with whatever answer.
    pub async fn polls(&self, count: usize) -> Result<()> {
        let mark = self.link.mark();
        eventually(PATIENCE, "the agent to poll", async || {
            let polls = self.link.since(mark).into_iter();
            polls.filter(|poll| poll.asked.path.ends_with("/target-state")).count() >= count
        })
        .await
    }

    /// What the agent wrote since, except its own memory.
    pub fn writes(&self, mark: usize) -> Vec<Exchange> {
        let own = |exchange: &Exchange| {
            exchange
                .asked
                .place
                .as_ref()
                .is_some_and(|place| place.namespace.as_deref() == Some(self.shop.namespace()))
        };
        let all = self.api.since(mark).into_iter();
        all.filter(|exchange| exchange.asked.is_write() && !own(exchange)).collect()
    }

    /// Everything that no fault excuses.
    pub async fn invariants(&self) -> Result<()> {
        crate::invariants::hold(self).await?;
        let theirs = self.map("theirs").await?.context("S1: something foreign was deleted")?;
        assert_eq!(footprint(&theirs), self.foreign, "S1: something foreign was changed");
        Ok(())
    }
}

/// One request in a line.
pub fn brief(exchange: &Exchange) -> String {
    let asked = &exchange.asked;
    format!("{} {} → {:?} told {:?}", asked.method, asked.path, exchange.upstream, exchange.told)
}

pub fn configmap(namespace: &str, name: &str, value: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         data:\n  value: \"{value}\"\n"
    )
}

/// Version and identity of a live object: what must not move where nothing changed.
pub fn footprint(map: &ConfigMap) -> (Option<String>, Option<String>) {
    (map.metadata.uid.clone(), map.metadata.resource_version.clone())
}

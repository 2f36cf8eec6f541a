//! Row 20: the agent is killed at its k-th write, for every k, while one stack goes from nothing to forty objects, to forty other
//! objects, to nothing. Each result must equal that of a clean run.
//!
//! The forty include namespaces, a definition with resources, an object that waits for its finalizer, and objects to prune. Each k
//! has an agent and names of its own; they share a cluster and a broker.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use brokkr_testkit::proxy::{Action, Matcher};
use brokkr_testkit::{Agent, AgentOptions, Cluster, FaultProxy, Fleet, eventually, unique};
use futures::StreamExt as _;
use futures::future::Either;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::world::config_map_yaml;
use brokkr_e2e::runs_in_full;

const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
/// Concurrent agents.
const CONCURRENT_WALKS: usize = 4;
/// The sample without `BROKKR_FAULTS=all`: the first record, the prerequisites, the middle of each of the three phases.
const SAMPLE: [usize; 5] = [2, 7, 41, 62, 110];

/// One agent with a stack of its own.
struct Walk {
    agent: Agent,
    api: FaultProxy,
    client: Client,
    /// Part of every name of this walk.
    tag: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_20_killed_at_any_write_the_agent_ends_in_the_state_of_a_clean_run() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let fleet = Fleet::start().await?;
    let clean = Walk::start(&fleet, &cluster).await?;
    let path = clean.walk(&fleet, &cluster, None).await.context("the clean run")?;
    println!("a clean run makes {} writes", path.writes);
    let steps: Vec<usize> = if runs_in_full() { (1..=path.writes).collect() } else { SAMPLE.to_vec() };
    let path = &path;
    let results: Vec<(usize, Result<()>)> = futures::stream::iter(steps)
        .map(async |step| (step, killed_at(&fleet, &cluster, path, step).await))
        .buffer_unordered(CONCURRENT_WALKS)
        .collect()
        .await;
    let failed: Vec<String> = results
        .iter()
        .filter_map(|(step, result)| Some(format!("at write {step}: {:?}", result.as_ref().err()?)))
        .collect();
    ensure!(failed.is_empty(), "{} of {} steps:\n{}", failed.len(), results.len(), failed.join("\n"));
    Ok(())
}

async fn killed_at(fleet: &Fleet, cluster: &Arc<Cluster>, clean: &WalkResult, step: usize) -> Result<()> {
    let walk = Walk::start(fleet, cluster).await?;
    let path = walk.walk(fleet, cluster, Some(step)).await?;
    // The clean run may have repeated a write that another run does not need to repeat.
    ensure!(path.killed || path.writes < step, "it was not killed, although it made {} writes", path.writes);
    if !path.killed {
        println!("the run that was to be killed at write {step} made only {}", path.writes);
    }
    for (what, ours, theirs) in
        [("first", &path.first, &clean.first), ("second", &path.second, &clean.second)]
    {
        if ours != theirs {
            bail!("the {what} state is not that of a clean run:\n{ours:#?}\ninstead of\n{theirs:#?}");
        }
    }
    Ok(())
}

/// The state after each phase, without the parts that differ from run to run.
struct WalkResult {
    first: BTreeMap<String, Value>,
    second: BTreeMap<String, Value>,
    writes: usize,
    /// Whether it met its fault. It does not if it ends with fewer writes.
    killed: bool,
}

impl Walk {
    async fn start(fleet: &Fleet, cluster: &Arc<Cluster>) -> Result<Self> {
        let api = FaultProxy::of_cluster(cluster).await?;
        let tag = unique("k").trim_start_matches("k-").to_owned();
        let options = AgentOptions {
            api_server: Some(api.route()),
            // Custom kinds have to be allowed by an administrator.
            install: vec![format!("--kind=*.{tag}.faults.example")],
            ..Default::default()
        };
        let agent = fleet.join_with(&format!("shop-{tag}"), &[("walk", &tag)], cluster, &options).await?;
        Ok(Self { agent, api, client: cluster.admin().await?, tag })
    }

    async fn walk(&self, fleet: &Fleet, cluster: &Cluster, step: Option<usize>) -> Result<WalkResult> {
        let freeing = tokio::spawn(remove_finalizers_of_deleted(self.maps()));
        let own = self.agent.namespace().to_owned();
        let writes = move |matcher: Matcher| {
            let own = own.clone();
            // Writes of the agent's own state are not steps of the plan.
            matcher.and(move |request| {
                request.resource.as_ref().is_some_and(|path| path.namespace.as_deref() != Some(&own))
            })
        };
        let rule = step.map(|step| {
            // Alternately before and after: never forwarded, or executed without a response.
            let action = if step % 2 == 0 { Action::HaltBefore } else { Action::HaltAfter };
            self.api.when(writes(Matcher::writes()).nth(step), action)
        });
        let killing = async {
            let Some(rule) = &rule else { return std::future::pending().await };
            rule.wait_for_hits(1, WAIT_TIMEOUT * 4).await?;
            self.agent.kill9();
            rule.discard();
            self.agent.start()
        };
        let mark = self.api.mark();
        let walking = async {
            self.deliver(fleet, &self.first()).await?;
            let first = self.snapshot(cluster).await?;
            self.deliver(fleet, &self.second()).await?;
            let second = self.snapshot(cluster).await?;
            fleet.brokkr(["stack", "delete", &self.stack(), "--yes"]).await?.ok()?;
            self.gone(cluster).await?;
            anyhow::Ok((first, second))
        };
        let (walked, killed) = match futures::future::select(pin!(walking), pin!(killing)).await {
            Either::Left((walked, _)) => (walked, false),
            Either::Right((killed, walking)) => {
                killed?;
                (walking.await, true)
            }
        };
        let (first, second) = walked?;
        freeing.abort();
        let own = self.agent.namespace();
        let counted = self.api.since(mark).into_iter().filter(|exchange| {
            exchange.request.is_write()
                && exchange
                    .request
                    .resource
                    .as_ref()
                    .is_some_and(|path| path.namespace.as_deref() != Some(own))
        });
        Ok(WalkResult { first, second, writes: counted.count(), killed })
    }

    fn stack(&self) -> String {
        format!("walk-{}", self.tag)
    }

    fn space(&self, name: &str) -> String {
        format!("{name}-{}", self.tag)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.space("one"))
    }

    /// Returns two namespaces, a definition, three resources of it, one object with a finalizer, and 33 others.
    fn first(&self) -> String {
        let mut yaml = self.namespace("one") + &self.namespace("two") + &self.definition();
        yaml += &(0..3).map(|number| self.gear(number, 1)).collect::<String>();
        yaml += &self.with_finalizer();
        yaml += &(0..20)
            .map(|number| config_map_yaml(&self.space("one"), &format!("m{number}"), "1"))
            .collect::<String>();
        yaml += &(0..13)
            .map(|number| config_map_yaml(&self.space("two"), &format!("m{number}"), "1"))
            .collect::<String>();
        yaml
    }

    /// Returns the next version: without one namespace, its contents and the object with the finalizer; with some objects
    /// changed and some added.
    fn second(&self) -> String {
        let mut yaml = self.namespace("one") + &self.namespace("three") + &self.definition();
        yaml += &(1..4).map(|number| self.gear(number, 2)).collect::<String>();
        yaml += &(5..25)
            .map(|number| config_map_yaml(&self.space("one"), &format!("m{number}"), "2"))
            .collect::<String>();
        yaml += &(0..14)
            .map(|number| config_map_yaml(&self.space("three"), &format!("m{number}"), "1"))
            .collect::<String>();
        yaml
    }

    fn namespace(&self, name: &str) -> String {
        format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n", self.space(name))
    }

    fn definition(&self) -> String {
        let group = format!("{}.faults.example", self.tag);
        format!(
            "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: gears.{group}\n\
             spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: gears, singular: gear, kind: Gear}}\n  \
             versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
             type: object\n        x-kubernetes-preserve-unknown-fields: true\n"
        )
    }

    fn gear(&self, number: u32, teeth: u32) -> String {
        format!(
            "---\napiVersion: {}.faults.example/v1\nkind: Gear\nmetadata:\n  name: gear-{number}\n  namespace: {}\nspec:\n  teeth: {teeth}\n",
            self.tag,
            self.space("one")
        )
    }

    fn with_finalizer(&self) -> String {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: held\n  namespace: {}\n  finalizers: [faults.example/hold]\ndata:\n  value: \"1\"\n",
            self.space("one")
        )
    }

    async fn deliver(&self, fleet: &Fleet, yaml: &str) -> Result<()> {
        let stack = self.stack();
        fleet.submit(&stack, &format!("walk={}", self.tag), yaml).await?;
        eventually(WAIT_TIMEOUT, &format!("{stack} to be healthy"), async || {
            let newest = fleet.get(&format!("/api/v1/stacks/{stack}")).await?["sequence_id"].clone();
            let statuses = fleet.get(&format!("/api/v1/stacks/{stack}/status")).await?;
            let healthy = statuses["items"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|status| status["state"] == "healthy" && status["sequence_id"] == newest);
            ensure!(healthy, "{statuses}");
            Ok(())
        })
        .await
    }

    /// Returns all objects with this agent's label; names, ids and times are replaced by placeholders.
    async fn snapshot(&self, cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
        let agent = self.label().await?;
        let kinds = format!("namespaces,configmaps,crd,gears.{}.faults.example", self.tag);
        let selector = format!("brokkr.io/agent={agent}");
        let list: Value =
            cluster.kubectl(["get", &kinds, "-A", "-l", &selector, "-o", "json"]).await?.ok()?.json()?;
        let mut found = BTreeMap::new();
        for object in list["items"].as_array().into_iter().flatten() {
            let metadata = &object["metadata"];
            let kept = json!({
                "labels": metadata["labels"], "finalizers": metadata["finalizers"],
                "marks": metadata["annotations"].as_object().map(|all| {
                    all.keys().filter(|key| key.starts_with("brokkr.io/")).cloned().collect::<Vec<_>>()
                }),
                "deleting": metadata["deletionTimestamp"].is_string(),
                "data": object["data"], "spec": object["spec"],
            });
            let text = kept.to_string().replace(&agent, "AGENT").replace(&self.tag, "TAG");
            let key = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
            found.insert(key.replace(&self.tag, "TAG"), serde_json::from_str(&text)?);
        }
        Ok(found)
    }

    /// Returns the agent's label value.
    async fn label(&self) -> Result<String> {
        let ours = ListParams::default().labels("brokkr.io/agent");
        let maps = self.maps().list(&ours).await?;
        let first = maps.items.first().context("nothing was delivered")?;
        Ok(first.labels()["brokkr.io/agent"].clone())
    }

    async fn gone(&self, cluster: &Cluster) -> Result<()> {
        eventually(WAIT_TIMEOUT, "nothing of the stack to be left", async || {
            let kinds = "namespaces,crd,stacks.brokkr.io";
            let all = cluster.kubectl(["get", kinds, "-o", "name"]).await?.ok()?;
            let own = self.agent.namespace();
            let left: Vec<&str> =
                all.stdout.lines().filter(|line| line.contains(&self.tag) && !line.ends_with(own)).collect();
            ensure!(left.is_empty(), "{left:?}; the agent's log:\n{}", self.agent.log_tail(6));
            Ok(())
        })
        .await
    }
}

/// Simulates the controller of the finalizer: removes it from objects that are being deleted.
async fn remove_finalizers_of_deleted(maps: Api<ConfigMap>) -> Result<()> {
    let free = json!({"metadata": {"finalizers": null}});
    loop {
        if let Ok(Some(map)) = maps.get_opt("held").await
            && map.metadata.deletion_timestamp.is_some()
        {
            let _ = maps.patch("held", &PatchParams::default(), &Patch::Merge(&free)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

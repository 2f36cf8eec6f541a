//! The starting point of most end-to-end tests: one fleet, one cluster, one agent, and a namespace of the test's own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::agent::{Agent, AgentOptions};
use crate::cluster::Cluster;
use crate::eventually::{Attempt, eventually};
use crate::fleet::Fleet;
use crate::names::unique;

/// The longest time that a test waits for an expected change. Generous, because the machine may be small and shared.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
/// The name under which the world's agent joins.
pub const AGENT: &str = "shop-1";

/// One fleet, one cluster, one agent with the label `env=prod`, and a namespace name that no other test uses.
pub struct World {
    // Dropped in this order: the agent before its broker.
    pub agent: Agent,
    pub fleet: Fleet,
    pub cluster: Arc<Cluster>,
    pub client: Client,
    /// Not created by [`World::start`].
    pub namespace: String,
}

impl World {
    pub async fn start() -> Result<Self> {
        Self::start_with(&AgentOptions::default()).await
    }

    pub async fn start_with(options: &AgentOptions) -> Result<Self> {
        Self::start_in(Cluster::shared().await?, Fleet::start().await?, options).await
    }

    /// Joins the agent to a given fleet, in a given cluster.
    pub async fn start_in(cluster: Arc<Cluster>, fleet: Fleet, options: &AgentOptions) -> Result<Self> {
        let agent = fleet.join_with(AGENT, &[("env", "prod")], &cluster, options).await?;
        Self::of(agent, fleet, cluster).await
    }

    /// Builds a world around an agent that has already been started.
    pub async fn of(agent: Agent, fleet: Fleet, cluster: Arc<Cluster>) -> Result<Self> {
        let client = cluster.admin().await?;
        Ok(Self { agent, fleet, cluster, client, namespace: unique("space") })
    }

    // ── manifests ──

    /// Returns the manifest of the namespace and of ConfigMaps with these names and values.
    pub fn manifest(&self, config_maps: &[(&str, &str)]) -> String {
        format!("{}{}", namespace_yaml(&self.namespace), self.config_maps_yaml(config_maps))
    }

    /// Returns the manifest of ConfigMaps with these names and values.
    pub fn config_maps_yaml(&self, config_maps: &[(&str, &str)]) -> String {
        config_maps.iter().map(|(name, value)| config_map_yaml(&self.namespace, name, value)).collect()
    }

    // ── the cluster ──

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>> {
        Ok(self.config_maps().get_opt(name).await?)
    }

    /// Returns the value of a ConfigMap of [`World::manifest`], if it exists.
    pub async fn value(&self, name: &str) -> Result<Option<String>> {
        Ok(self.config_map(name).await?.and_then(|map| map.data?.get("value").cloned()))
    }

    /// Changes the value of a ConfigMap as a user with kubectl would.
    pub async fn edit(&self, name: &str, value: &str) -> Result<ConfigMap> {
        let patch = json!({"data": {"value": value}});
        Ok(self.config_maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Applies a ConfigMap that Brokkr does not manage.
    pub async fn apply_foreign(&self, name: &str) -> Result<ConfigMap> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace}, "data": {"mine": "yes"},
        });
        let parameters = PatchParams::apply("another-client");
        Ok(self.config_maps().patch(name, &parameters, &Patch::Apply(&map)).await?)
    }

    pub async fn create_namespace(&self) -> Result<Namespace> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": self.namespace}}))?;
        Ok(api.create(&Default::default(), &namespace).await?)
    }

    /// Returns the namespace as it is in the cluster, if it exists.
    pub async fn live_namespace(&self) -> Result<Option<Namespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(&self.namespace).await?)
    }

    pub async fn wait_for_value(&self, name: &str, expected: &str) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("ConfigMap {name} to have the value {expected}"), async || {
            match self.value(name).await {
                Ok(Some(value)) if value == expected => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    pub async fn wait_until_gone(&self, name: &str) -> Result<()> {
        eventually(WAIT_TIMEOUT, &format!("ConfigMap {name} to be gone"), async || {
            match self.config_map(name).await {
                Ok(None) => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    // ── reports ──

    /// Waits until the status of a stack on an agent passes the test, and returns it.
    pub async fn wait_for_status(
        &self,
        stack: &str,
        agent: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(WAIT_TIMEOUT, &format!("{stack} on {agent}: {what}"), async || {
            match self.statuses(stack).await {
                Ok(items) => match items.iter().find(|item| item["agent_name"] == agent && test(item)) {
                    Some(item) => Attempt::Done(item.clone()),
                    None => Attempt::NotYet(format!("{items:?}")),
                },
                Err(error) => Attempt::NotYet(format!("{error:#}")),
            }
        })
        .await
    }

    /// Returns the status of a stack on each agent.
    pub async fn statuses(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/stacks/{stack}/status")).await?;
        page["items"].as_array().cloned().context("a list of statuses")
    }

    pub async fn events(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/events?stack={stack}&limit=500")).await?;
        page["items"].as_array().cloned().context("a list of events")
    }
}

pub fn namespace_yaml(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

pub fn config_map_yaml(namespace: &str, name: &str, value: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         data:\n  value: \"{value}\"\n"
    )
}

pub fn deployment_yaml(namespace: &str, name: &str, replicas: u32) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  replicas: {replicas}\n  selector:\n    matchLabels: {{app: {name}}}\n  template:\n    \
         metadata:\n      labels: {{app: {name}}}\n    spec:\n      containers:\n      - name: web\n        \
         image: registry.example/web:1\n"
    )
}

/// Returns a definition of the kind `Counter` with the versions `v1beta1`, which need not be served, and `v1`, which is stored.
pub fn counter_definition(group: &str, serves_beta: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let old = json!({"name": "v1beta1", "served": serves_beta, "storage": false, "schema": schema});
    let new = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("counters.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Counter", "plural": "counters", "singular": "counter"},
            "versions": [old, new],
        },
    })
}

/// Returns the UID and the resource version of an object, which do not change if nothing touches it.
pub fn uid_and_version(map: &ConfigMap) -> (Option<String>, Option<String>) {
    (map.metadata.uid.clone(), map.metadata.resource_version.clone())
}

/// Writes a container status, as a kubelet would, to the Pod with the label `app=web` and this image.
pub async fn set_container_status(
    client: &Client,
    namespace: &str,
    image: &str,
    container: Value,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let name = eventually(WAIT_TIMEOUT, "a pod with the image", async || {
        let pods = pods.list(&ListParams::default().labels("app=web")).await;
        let has_image = |pod: &Pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.into_iter().any(|container| container.image.as_deref() == Some(image))
        };
        match pods.ok().and_then(|pods| pods.items.into_iter().find(has_image)) {
            Some(pod) => Attempt::Done(pod.name_any()),
            None => Attempt::NotYet("no such pod".to_owned()),
        }
    })
    .await?;
    let mut status = json!({"name": "web", "image": image, "imageID": "", "ready": false, "restartCount": 0});
    let fields = container.as_object().context("fields of a container's status")?.clone();
    status.as_object_mut().context("an object")?.extend(fields);
    let patch = json!({"status": {
        "phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
        "containerStatuses": [status],
    }});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

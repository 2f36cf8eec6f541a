//! What nearly every end-to-end test starts from: one cluster, one fleet, one agent, one namespace of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_testkit::{Agent, AgentOptions, Cluster, Fleet, Look, eventually, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// Generous: the machine is small and shared. Nothing waits longer than it has to.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    // Dropped in this order: the agent before its broker.
    pub shop: Agent,
    pub fleet: Fleet,
    pub cluster: Arc<Cluster>,
    pub client: Client,
    /// A namespace name that nobody else uses. Not created.
    pub space: String,
}

impl World {
    pub async fn start() -> Result<Self> {
        Self::start_with(&AgentOptions::default()).await
    }

    pub async fn start_with(options: &AgentOptions) -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let fleet = Fleet::start().await?;
        let shop = fleet.join_with("shop-1", &[("env", "prod")], &cluster, options).await?;
        let client = cluster.admin().await?;
        Ok(Self { shop, fleet, cluster, client, space: unique("space") })
    }

    pub fn configmaps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.space)
    }

    /// The same namespace, and these ConfigMaps with their value.
    pub fn manifest(&self, maps: &[(&str, &str)]) -> String {
        let space = &self.space;
        let mut text = namespace(space);
        for (name, value) in maps {
            text.push_str(&configmap(space, name, value));
        }
        text
    }

    /// Something that is not Brokkr's, beside what is.
    pub async fn put_foreign(&self, name: &str) -> Result<ConfigMap> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.space}, "data": {"mine": "yes"},
        });
        let parameters = PatchParams::apply("somebody-else");
        Ok(self.configmaps().patch(name, &parameters, &Patch::Apply(&map)).await?)
    }

    pub async fn create_namespace(&self) -> Result<Namespace> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": self.space}}))?;
        Ok(api.create(&Default::default(), &namespace).await?)
    }

    pub async fn namespace(&self) -> Result<Option<Namespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(&self.space).await?)
    }

    pub async fn map(&self, name: &str) -> Result<Option<ConfigMap>> {
        Ok(self.configmaps().get_opt(name).await?)
    }

    pub async fn value(&self, name: &str) -> Result<Option<String>> {
        Ok(self.map(name).await?.and_then(|map| map.data?.get("value").cloned()))
    }

    /// Somebody changes the value by hand.
    pub async fn edit(&self, name: &str, value: &str) -> Result<ConfigMap> {
        let patch = json!({"data": {"value": value}});
        Ok(self.configmaps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
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

    pub async fn sees_gone(&self, name: &str) -> Result<()> {
        eventually(PATIENCE, &format!("ConfigMap {name} to be gone"), async || match self.map(name).await {
            Ok(None) => Look::Yes(()),
            other => Look::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// The status of a stack on an agent, once it satisfies.
    pub async fn status(
        &self,
        stack: &str,
        agent: &str,
        what: &str,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(PATIENCE, &format!("{stack} on {agent}: {what}"), async || {
            match self.statuses(stack).await {
                Ok(items) => match items.iter().find(|item| item["agent_name"] == agent && good(item)) {
                    Some(item) => Look::Yes(item.clone()),
                    None => Look::NotYet(format!("{items:?}")),
                },
                Err(error) => Look::NotYet(format!("{error:#}")),
            }
        })
        .await
    }

    pub async fn statuses(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/stacks/{stack}/status")).await?;
        page["items"].as_array().cloned().context("a list of statuses")
    }

    pub async fn events(&self, stack: &str) -> Result<Vec<Value>> {
        let page = self.fleet.get(&format!("/api/v1/events?stack={stack}&limit=500")).await?;
        page["items"].as_array().cloned().context("a list of events")
    }
}

pub fn namespace(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

pub fn configmap(namespace: &str, name: &str, value: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         data:\n  value: \"{value}\"\n"
    )
}

pub fn deployment(namespace: &str, name: &str, replicas: u32) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  replicas: {replicas}\n  selector:\n    matchLabels: {{app: {name}}}\n  template:\n    \
         metadata:\n      labels: {{app: {name}}}\n    spec:\n      containers:\n      - name: web\n        \
         image: registry.example/web:1\n"
    )
}

/// Version and identity of a live object: what must not move where nothing changed.
pub fn footprint(map: &ConfigMap) -> (Option<String>, Option<String>) {
    (map.metadata.uid.clone(), map.metadata.resource_version.clone())
}

/// Writes what a kubelet would have written about the container of the Pod of `app=web` that has this image.
pub async fn suffer(client: &Client, space: &str, image: &str, container: Value) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), space);
    let name = eventually(PATIENCE, "a pod with the image", async || {
        let pods = pods.list(&ListParams::default().labels("app=web")).await;
        let has_image = |pod: &Pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.into_iter().any(|container| container.image.as_deref() == Some(image))
        };
        match pods.ok().and_then(|pods| pods.items.into_iter().find(has_image)) {
            Some(pod) => Look::Yes(pod.name_any()),
            None => Look::NotYet("none yet".to_owned()),
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

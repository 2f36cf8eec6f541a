//! A cluster whose agent may upgrade itself, and a stack with one object.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::nodes::Image;
use brokkr_testkit::nodes::images::AGENT_REPOSITORY;
use brokkr_testkit::{Attempt, Cluster, Scratch, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::beside::BrokerBeside;
use crate::installation::Terminal;

pub const HOME: &str = "brokkr-system";
pub const AGENT: &str = "brokkr-agent";
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
pub const DEADLINE: Duration = Duration::from_secs(180);
const SHOP: &str = "shop";
const SETTINGS: &str = "settings";
const RIGHT: &str = "right";
/// Keeps the new version from confirming an upgrade, so that it never becomes ready.
const UNCONFIRMABLE: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: unconfirmable}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: brokkr-system}}
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  validations:
  - expression: >-
      !('brokkr.io/previous-image' in oldObject.?metadata.?annotations.orValue({}))
      || 'brokkr.io/previous-image' in object.?metadata.?annotations.orValue({})
      || object.spec.template.spec.containers[0].image != oldObject.spec.template.spec.containers[0].image
    message: this upgrade cannot be confirmed
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: unconfirmable}
spec: {policyName: unconfirmable, validationActions: [Deny]}
"#;

pub struct Shop {
    pub name: String,
    // Dropped in this order: the broker before the clusters whose addresses it listens on.
    broker: Arc<BrokerBeside>,
    terminal: Terminal,
    /// As the administrator.
    deployments: Api<Deployment>,
    settings: Api<ConfigMap>,
    pods: Api<Pod>,
}

/// Starts a cluster with one real node, which has both versions of the agent.
pub async fn terminal() -> Result<Terminal> {
    let cluster = Cluster::with_real_nodes(1).await?;
    cluster.import(&Image::brokkr(AGENT)?).await?;
    cluster.import(&Image::next_agent()?.0).await?;
    let scratch = Scratch::new("agent-upgrade")?;
    scratch.write("unconfirmable.yaml", UNCONFIRMABLE)?;
    Ok(Terminal { cluster, scratch })
}

impl Shop {
    /// Lets an agent join that may upgrade itself, and gives it a stack of its own.
    pub async fn join(name: &str, terminal: Terminal, broker: Arc<BrokerBeside>) -> Result<Self> {
        let client = terminal.cluster.admin().await?;
        let shop = Self {
            name: name.to_owned(),
            broker,
            terminal,
            deployments: Api::namespaced(client.clone(), HOME),
            settings: Api::namespaced(client.clone(), SHOP),
            pods: Api::namespaced(client, HOME),
        };
        let manifest = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SHOP}}}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {SETTINGS}, namespace: {SHOP}}}\n\
             data: {{value: {RIGHT}}}\n"
        );
        shop.terminal.scratch.write("settings.yaml", manifest)?;
        shop.types(&format!(
            "brokkr agent join {name} --image {AGENT}:{VERSION} --allow-upgrade {AGENT_REPOSITORY} --timeout 2m"
        ))
        .await?;
        // The running agent looks for an upgrade that it has not begun itself as seldom as it compares everything.
        shop.types(&format!(
            "kubectl -n {HOME} set env deployment {AGENT} BROKKR_UPGRADE_TIMEOUT=40s BROKKR_SWEEP_INTERVAL=5s
             kubectl -n {HOME} rollout status deployment {AGENT} --timeout=90s"
        ))
        .await?;
        let stack = format!("settings-of-{name}");
        shop.types(&format!("brokkr apply {stack} -f settings.yaml --to-agent {name} --wait --timeout 2m"))
            .await?;
        Ok(shop)
    }

    pub fn cluster(&self) -> &Cluster {
        &self.terminal.cluster
    }

    /// Types a command, logged in as the administrator.
    pub async fn types(&self, command: &str) -> Result<String> {
        self.broker.types(&self.terminal, command).await
    }

    /// Returns the image and the annotations of the agent's Deployment.
    pub async fn deployed(&self) -> Result<(String, Value)> {
        let deployment = serde_json::to_value(self.deployments.get(AGENT).await?)?;
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        Ok((image.as_str().context("an image")?.to_owned(), deployment["metadata"]["annotations"].clone()))
    }

    /// Waits until no upgrade is under way, and one Pod with this image is ready.
    pub async fn has(&self, image: &str) -> Result<()> {
        eventually(DEADLINE, &format!("the agent to have {image}"), async || {
            let (deployed, annotations) = self.deployed().await?;
            ensure!(deployed == image, "it has {deployed}");
            ensure!(annotations.get("brokkr.io/previous-image").is_none(), "{annotations}");
            let pods = self.pods.list(&ListParams::default()).await?.items;
            ensure!(pods.len() == 1 && is_ready(&pods[0]), "{pods:#?}");
            anyhow::Ok(())
        })
        .await
    }

    /// Changes the object of the stack, as someone else, and waits until the agent has repaired it.
    pub async fn repairs(&self) -> Result<()> {
        let patch = json!({"data": {"value": "wrong"}});
        self.settings.patch(SETTINGS, &PatchParams::default(), &Patch::Merge(patch)).await?;
        eventually(DEADLINE, "the object to be repaired", async || match self.settings.get(SETTINGS).await {
            Ok(map) if map.data.iter().flatten().any(|(_, value)| value == RIGHT) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    /// Waits until the broker has a session of this version.
    pub async fn serves(&self, version: &str) -> Result<()> {
        eventually(DEADLINE, &format!("{version} to serve"), async || {
            let shown = self.types(&format!("brokkr agent show {}", self.name)).await?;
            ensure!(shown.contains(version), "{shown}");
            anyhow::Ok(())
        })
        .await
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}

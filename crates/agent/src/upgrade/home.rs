//! The objects of an upgrade in the agent's namespace: its Deployment, the ConfigMap of the fence, and the ConfigMap in which the two
//! processes of an upgrade store what they know.

use std::collections::BTreeMap;

use brokkr_install::workload::SELECTOR;
use brokkr_install::{ACCOUNT, FENCE};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::role::{Attempt, DeployedVersion, End, ProofResult, StoredUpgrade};
use crate::own_objects::{RequestError, with_deadline};

pub const AGENT_VERSION: &str = "brokkr.io/agent-version";
pub const PREVIOUS_IMAGE: &str = "brokkr.io/previous-image";
pub const PREVIOUS_VERSION: &str = "brokkr.io/previous-version";

/// The ConfigMap of the upgrade.
pub const CONFIG_MAP: &str = "brokkr-agent-upgrade";
const ATTEMPT: &str = "attempt";
const RESULT: &str = "result";
const END: &str = "end";

#[derive(Clone)]
pub struct Home {
    pub namespace: String,
    deployments: Api<Deployment>,
    maps: Api<ConfigMap>,
    pods: Api<Pod>,
}

/// The agent's Deployment as it was read.
#[derive(Clone, Debug)]
pub struct OwnDeployment(Deployment);

/// What the API server knows about upgrades of this agent.
#[derive(Clone, Debug)]
pub struct Found {
    pub deployment: OwnDeployment,
    pub deployed: DeployedVersion,
    pub stored: StoredUpgrade,
}

impl Home {
    #[must_use]
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            deployments: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Returns the data of the fence's ConfigMap: what the owner of the cluster has installed and allows.
    pub async fn installed(&self) -> Result<BTreeMap<String, String>, RequestError> {
        let map = with_deadline(self.maps.get_opt(FENCE)).await?;
        Ok(map.and_then(|map| map.data).unwrap_or_default())
    }

    /// Returns the Deployment and the stored upgrade; none if the agent has no Deployment.
    pub async fn find(&self) -> Result<Option<Found>, RequestError> {
        let deployment = with_deadline(self.deployments.get_opt(ACCOUNT)).await?.map(OwnDeployment);
        let Some((deployment, deployed)) = deployment.and_then(|own| own.version().map(|of| (own, of)))
        else {
            return Ok(None);
        };
        let map = with_deadline(self.maps.get_opt(CONFIG_MAP)).await?;
        let stored = read(&map.and_then(|map| map.data).unwrap_or_default());
        Ok(Some(Found { deployment, deployed, stored }))
    }

    /// Changes image and annotations, unless the Deployment was changed since it was read.
    pub async fn change(
        &self,
        deployment: &OwnDeployment,
        wanted: &DeployedVersion,
    ) -> Result<(), RequestError> {
        let patch = Patch::Strategic(deployment.patch(wanted));
        with_deadline(self.deployments.patch(ACCOUNT, &PatchParams::default(), &patch)).await.map(|_| ())
    }

    /// Returns the Pods of the agent with this image.
    pub async fn pods_with(&self, image: &str) -> Result<Vec<Pod>, RequestError> {
        let pods = with_deadline(self.pods.list(&ListParams::default().labels(SELECTOR))).await?;
        let has_image = |pod: &Pod| {
            pod.spec.iter().flat_map(|spec| &spec.containers).any(|own| own.image.as_deref() == Some(image))
        };
        Ok(pods.items.into_iter().filter(has_image).collect())
    }

    /// Stores an upgrade that begins, in place of an earlier one.
    pub async fn store_attempt(&self, attempt: &Attempt) -> Result<(), RequestError> {
        self.store(json!({ATTEMPT: text(attempt), RESULT: null, END: null})).await
    }

    pub async fn store_result(&self, result: &ProofResult) -> Result<(), RequestError> {
        self.store(json!({RESULT: text(result)})).await
    }

    pub async fn store_end(&self, end: &End) -> Result<(), RequestError> {
        self.store(json!({END: text(end)})).await
    }

    async fn store(&self, data: Value) -> Result<(), RequestError> {
        let patch = Patch::Merge(json!({"data": data}));
        match with_deadline(self.maps.patch(CONFIG_MAP, &PatchParams::default(), &patch)).await {
            Err(error) if error.is(404) => {
                let data = data.as_object().into_iter().flatten();
                let texts = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                let map = ConfigMap {
                    metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
                    data: Some(texts.collect()),
                    ..ConfigMap::default()
                };
                with_deadline(self.maps.create(&PostParams::default(), &map)).await.map(|_| ())
            }
            written => written.map(|_| ()),
        }
    }
}

impl OwnDeployment {
    fn version(&self) -> Option<DeployedVersion> {
        let annotation = |name: &str| self.0.metadata.annotations.as_ref()?.get(name).cloned();
        Some(DeployedVersion {
            image: self.0.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()?,
            agent_version: annotation(AGENT_VERSION),
            previous_image: annotation(PREVIOUS_IMAGE),
            previous_version: annotation(PREVIOUS_VERSION),
        })
    }

    /// Returns whether the Pod of this process stays until its successor is ready. Otherwise nothing could restore its image.
    #[must_use]
    pub fn keeps_old_pod(&self) -> bool {
        let strategy = self.0.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
            Some(IntOrString::Int(number)) => *number == 0,
            Some(IntOrString::String(text)) => matches!(text.as_str(), "0" | "0%"),
            None => false,
        }
    }

    fn patch(&self, wanted: &DeployedVersion) -> Value {
        let containers =
            self.0.spec.iter().flat_map(|spec| &spec.template.spec).flat_map(|pod| &pod.containers);
        let name = containers.map(|container| container.name.as_str()).next();
        json!({
            "metadata": {
                "resourceVersion": self.0.metadata.resource_version,
                "annotations": {
                    AGENT_VERSION: wanted.agent_version,
                    PREVIOUS_IMAGE: wanted.previous_image,
                    PREVIOUS_VERSION: wanted.previous_version,
                },
            },
            "spec": {"template": {"spec": {"containers": [{"name": name, "image": wanted.image}]}}},
        })
    }
}

/// A value that cannot be read counts as absent.
fn read(data: &BTreeMap<String, String>) -> StoredUpgrade {
    fn one<T: DeserializeOwned>(data: &BTreeMap<String, String>, key: &str) -> Option<T> {
        serde_json::from_str(data.get(key)?).ok()
    }
    StoredUpgrade { attempt: one(data, ATTEMPT), result: one(data, RESULT), end: one(data, END) }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use brokkr_api::UpgradeId;
    use brokkr_api::upgrades::{ProofCheck, UpgradeReason};
    use jiff::Timestamp;

    use super::*;
    use crate::upgrade::role::Verdict;

    fn deployment() -> OwnDeployment {
        let workload = include_str!("../../../../deploy/workload.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(workload).unwrap();
        let found = objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap();
        OwnDeployment(serde_json::from_value(found).unwrap())
    }

    #[test]
    fn the_installed_deployment_keeps_its_pod_until_the_next_one_is_ready() {
        let mut own = deployment();
        assert!(own.keeps_old_pod());
        own.0.spec.as_mut().unwrap().strategy = None;
        assert!(!own.keeps_old_pod());
    }

    #[test]
    fn a_change_sets_only_image_and_annotations_and_only_of_what_was_read() {
        let mut own = deployment();
        own.0.metadata.resource_version = Some("7".to_owned());
        let deployed = own.version().unwrap();
        assert_eq!(deployed, DeployedVersion { image: "brokkr-agent".into(), ..DeployedVersion::default() });
        let expected = json!({
            "metadata": {
                "resourceVersion": "7",
                "annotations": {AGENT_VERSION: "0.2.0", PREVIOUS_IMAGE: "brokkr-agent", PREVIOUS_VERSION: null},
            },
            "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "new"}]}}},
        });
        assert_eq!(own.patch(&deployed.begun("new", "0.2.0")), expected);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let image = || "new".to_owned();
        let reason = UpgradeReason::NotProved { check: ProofCheck::Broker, message: "no".to_owned() };
        let attempt = Attempt { id: UpgradeId(7), image: image(), from: "0.1.0".to_owned() };
        let result = ProofResult { image: image(), verdict: Verdict::Refuses { reason: reason.clone() } };
        let end = End { image: image(), reason, at: Timestamp::UNIX_EPOCH, is_reported: true };
        let data = [(ATTEMPT, text(&attempt)), (RESULT, text(&result)), (END, text(&end))];
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let stored = StoredUpgrade { attempt: Some(attempt), result: Some(result), end: Some(end) };
        assert_eq!(read(&data), stored);
        assert_eq!(read(&BTreeMap::from([(RESULT.to_owned(), "{".to_owned())])), StoredUpgrade::default());
    }
}

//! Which kinds the API server serves, and how a manifest is resolved against that.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use brokkr_api::ids::Checksum;
use brokkr_manifest::order::{WAVE, rank};
use brokkr_manifest::{Identity, Manifest};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use super::Cluster;
use crate::plan::types::Wanted;
use crate::resource::{Kind, Served};

/// Kinds that were asked for once. A kind that was found stays; one that was not is asked for again.
#[derive(Clone, Default)]
pub struct Kinds {
    known: Arc<Mutex<HashMap<GroupVersionKind, Kind>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("the cluster does not know {0}; its definition is not in this stack either")]
    UnknownKind(String),
    #[error("{object} names a namespace, and {kind} is not namespaced")]
    NotNamespaced { object: String, kind: String },
    #[error("discovery failed: {0}")]
    Unreachable(String),
}

#[must_use]
pub fn kind_of(resource: &ApiResource, namespaced: bool) -> Kind {
    Kind::from(Served {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
        namespaced,
    })
}

impl Kinds {
    async fn resolve(
        &self,
        cluster: &Cluster,
        identity: &Identity,
        manifest: &Manifest,
    ) -> Result<Kind, ResolveError> {
        let wanted = GroupVersionKind::gvk(&identity.group, &identity.version, &identity.kind);
        if let Some(kind) = self.known.lock().expect("never poisoned").get(&wanted) {
            return Ok(kind.clone());
        }
        if let Some(kind) = defined_here(identity, manifest) {
            return Ok(kind);
        }
        match pinned_kind(cluster.client(), &wanted).await {
            Ok((resource, capabilities)) => {
                let kind = kind_of(&resource, capabilities.scope == Scope::Namespaced);
                self.known.lock().expect("never poisoned").insert(wanted, kind.clone());
                Ok(kind)
            }
            Err(kube::Error::Api(status)) if status.code != 404 => {
                Err(ResolveError::Unreachable(status.message.clone()))
            }
            Err(kube::Error::Api(_) | kube::Error::Discovery(_)) => {
                Err(ResolveError::UnknownKind(format!("{} {}", identity.api_version(), identity.kind)))
            }
            Err(error) => Err(ResolveError::Unreachable(error.to_string())),
        }
    }

    /// Every object of the manifest with the kind it is addressed by and the namespace it goes to.
    pub async fn resolve_all(
        &self,
        cluster: &Cluster,
        manifest: &Manifest,
    ) -> Result<BTreeMap<brokkr_manifest::Key, Arc<Wanted>>, ResolveError> {
        let mut wanted = BTreeMap::new();
        for object in &manifest.objects {
            let identity = &object.identity;
            let kind = self.resolve(cluster, identity, manifest).await?;
            let mut key = identity.key();
            if kind.namespaced {
                key.namespace.get_or_insert_with(|| "default".to_owned());
            } else if key.namespace.is_some() {
                return Err(ResolveError::NotNamespaced {
                    object: identity.to_string(),
                    kind: identity.kind.clone(),
                });
            }
            let wave = object.annotation(WAVE).and_then(|wave| wave.trim().parse().ok()).unwrap_or(0);
            wanted.insert(
                key.clone(),
                Arc::new(Wanted {
                    kind,
                    key,
                    body: object.body.clone(),
                    digest: Checksum(object.digest),
                    wave,
                    rank: rank(identity),
                }),
            );
        }
        Ok(wanted)
    }
}

/// The kind as a definition in the same manifest will make it known.
fn defined_here(identity: &Identity, manifest: &Manifest) -> Option<Kind> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    manifest.objects.iter().find_map(|object| {
        let spec = &object.body["spec"];
        let defines = object.identity.kind == "CustomResourceDefinition"
            && spec["group"] == identity.group.as_str()
            && spec["names"]["kind"] == identity.kind.as_str()
            && spec["versions"].as_array().is_some_and(|versions| {
                versions.iter().any(|version| version["name"] == identity.version.as_str())
            });
        if !defines {
            return None;
        }
        Some(Kind::from(Served {
            group: identity.group.clone(),
            version: identity.version.clone(),
            kind: identity.kind.clone(),
            plural: text(&spec["names"]["plural"])?,
            namespaced: spec["scope"] == "Namespaced",
        }))
    })
}

//! Finds out which kinds the API server serves, and resolves the objects of a manifest against them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brokkr_api::ids::Checksum;
use brokkr_api::reason::{Reason, Wave};
use brokkr_manifest::order::{WAVE, rank};
use brokkr_manifest::{HookUse, Identity, Key, Manifest, hook_of};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;

use super::granting::bound_role;
use super::request::Cluster;
use crate::model::{Body, BoundRole, DesiredObject, Failure, FailureClass, StepResult};
use crate::ownership::REPLACE;
use crate::resource::{Kind, KindName, Served};

/// How long an established definition may take to appear in discovery.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
const SERVED_CHECKS: Duration = Duration::from_millis(50);

/// How long a kind is cached: its definition may be replaced.
const FRESH: Duration = Duration::from_secs(60);

/// A cache of kinds, with the time at which they were found. Only kinds that were found are cached.
#[derive(Clone, Default)]
pub struct Kinds {
    known: Arc<Mutex<HashMap<GroupVersionKind, (Instant, Kind)>>>,
}

/// Why the objects of a manifest cannot be addressed.
#[derive(Debug)]
pub enum ResolveError {
    UnknownKind {
        kind: String,
    },
    NotNamespaced {
        object: String,
        kind: String,
    },
    /// With the error of the API server or of the connection to it.
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
        let desired = GroupVersionKind::gvk(&identity.group, &identity.version, &identity.kind);
        if let Some((found, kind)) = self.known.lock().expect("never poisoned").get(&desired)
            && found.elapsed() < FRESH
        {
            return Ok(kind.clone());
        }
        if let Some(kind) = defined_here(identity, manifest) {
            return Ok(kind);
        }
        match pinned_kind(cluster.client(), &desired).await {
            Ok((resource, capabilities)) => {
                let kind = kind_of(&resource, capabilities.scope == Scope::Namespaced);
                self.known.lock().expect("never poisoned").insert(desired, (Instant::now(), kind.clone()));
                Ok(kind)
            }
            Err(kube::Error::Api(status)) if status.code != 404 => {
                Err(ResolveError::Unreachable(status.message.clone()))
            }
            Err(kube::Error::Api(_) | kube::Error::Discovery(_)) => {
                let kind = format!("{} {}", identity.api_version(), identity.kind);
                Err(ResolveError::UnknownKind { kind })
            }
            Err(error) => Err(ResolveError::Unreachable(error.to_string())),
        }
    }

    /// Waits until the API server serves these kinds.
    pub async fn await_served(&self, cluster: &Cluster, kinds: &[Kind]) -> StepResult {
        let deadline = tokio::time::Instant::now() + SERVED_WITHIN;
        for kind in kinds {
            let desired = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
            while let Err(error) = pinned_kind(cluster.client(), &desired).await {
                if tokio::time::Instant::now() > deadline {
                    let reason = Reason::NotServed { kind: kind.to_string() };
                    return StepResult::Failed(Failure::with_words(FailureClass::Transient, reason, error));
                }
                tokio::time::sleep(SERVED_CHECKS).await;
            }
        }
        StepResult::Resolved
    }

    /// Returns every object of the manifest with its kind and namespace, except hooks that are left out.
    pub async fn resolve_all(
        &self,
        cluster: &Cluster,
        manifest: &Manifest,
    ) -> Result<BTreeMap<Key, Arc<DesiredObject>>, ResolveError> {
        let mut desired = BTreeMap::new();
        for object in &manifest.objects {
            let hook = match hook_of(object) {
                Some(HookUse::LeftOut(_)) => continue,
                Some(HookUse::Step(hook)) => Some(hook),
                None => None,
            };
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
            desired.insert(
                key.clone(),
                Arc::new(DesiredObject {
                    kind,
                    body: Body::new(&object.body),
                    digest: Checksum(object.digest),
                    wave: Wave::Number(wave),
                    rank: rank(identity),
                    defines: defines(&object.body).filter(|_| KindName::of(&key).is_definition()),
                    binds: bound_role(&key, &object.body)
                        .map(|role| BoundRole { in_stack: contains(manifest, &role), role }),
                    replace: object.annotation(REPLACE).is_some_and(|how| how.trim() == "recreate"),
                    hook,
                    key: key.clone(),
                }),
            );
        }
        Ok(desired)
    }
}

/// Returns whether the manifest contains this role.
fn contains(manifest: &Manifest, role: &Key) -> bool {
    manifest.objects.iter().any(|object| {
        let mut key = object.identity.key();
        if role.namespace.is_some() {
            key.namespace.get_or_insert_with(|| "default".to_owned());
        }
        key == *role
    })
}

/// Returns the kind that a definition defines.
fn defines(definition: &Value) -> Option<KindName> {
    let spec = &definition["spec"];
    Some(KindName { group: spec["group"].as_str()?.into(), kind: spec["names"]["kind"].as_str()?.into() })
}

/// Returns the kind, if a definition in the same manifest defines it.
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

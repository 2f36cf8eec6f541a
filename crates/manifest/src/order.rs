//! The order in which objects are applied and deleted.
//!
//! Five ranks cover the dependencies of every stack: a namespace before its objects, a definition before its custom
//! resources, a role before its bindings, configuration before the workloads that read it, and last the objects that make
//! the API server call a workload of this stack. Objects of one rank may be applied in parallel. Users who need more use
//! waves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::Object;
use crate::error::Problem;
use crate::identity::{Identity, Key};

/// The annotation with the wave of an object: an integer, 0 if absent.
pub const WAVE: &str = "brokkr.io/wave";

/// How early an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Objects without which the API server refuses others: Namespace, CustomResourceDefinition.
    Priority,
    /// Objects that workloads read when they start, or that limit them.
    Config,
    /// Bindings. If the account may not bind every role, the API server compares the role with the account's permissions, so
    /// the role has to exist.
    Binding,
    /// Services, workloads, custom resources and all other kinds.
    Workload,
    /// Objects that make the API server call a workload: webhook configurations, APIService.
    Late,
}

impl Rank {
    pub fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Priority,
            ("", "ServiceAccount" | "ConfigMap" | "Secret" | "ResourceQuota" | "LimitRange")
            | ("", "PersistentVolume" | "PersistentVolumeClaim")
            | ("rbac.authorization.k8s.io", "Role" | "ClusterRole")
            | ("networking.k8s.io", "NetworkPolicy") => Self::Config,
            ("rbac.authorization.k8s.io", _) => Self::Binding,
            // PriorityClass, StorageClass, IngressClass, RuntimeClass, GatewayClass…
            (_, kind) if kind.ends_with("Class") => Self::Config,
            // A webhook that is configured early could refuse the rest of its own stack.
            ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", _) => Self::Late,
            _ => Self::Workload,
        }
    }
}

/// Returns the rank of an object.
pub fn rank(identity: &Identity) -> Rank {
    Rank::of(&identity.group, &identity.kind)
}

/// Objects that may be applied at the same time, once every earlier stage is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage<'a> {
    pub wave: i64,
    pub rank: Rank,
    /// In the order of the manifest.
    pub objects: Vec<&'a Object>,
}

/// Returns the stages of an apply in order: by wave, then by rank. A namespace or definition without a wave belongs to
/// the first wave, because the objects of that wave may need it.
pub fn stages(objects: &[Object]) -> Vec<Stage<'_>> {
    let first = objects.iter().filter_map(explicit_wave).min().unwrap_or(0).min(0);
    let mut stages: BTreeMap<(i64, Rank), Vec<&Object>> = BTreeMap::new();
    for object in objects {
        let rank = rank(&object.identity);
        let default = if rank == Rank::Priority { first } else { 0 };
        stages.entry((explicit_wave(object).unwrap_or(default), rank)).or_default().push(object);
    }
    stages.into_iter().map(|((wave, rank), objects)| Stage { wave, rank, objects }).collect()
}

/// Reports a wave that is not a number, which would otherwise be ignored silently.
pub(crate) fn problem(body: &Value) -> Option<Problem> {
    let wave = body.get("metadata")?.get("annotations")?.get(WAVE)?.as_str()?;
    wave.trim().parse::<i64>().is_err().then(|| Problem::Malformed {
        field: format!("metadata.annotations[{WAVE}]"),
        rule: "a whole number, such as -1 or 10",
    })
}

fn explicit_wave(object: &Object) -> Option<i64> {
    object.annotation(WAVE)?.trim().parse().ok()
}

/// Groups resources in the order of their deletion; a group is gone before the next one is deleted.
///
/// This is the reverse order of the waves, and within a wave of the ranks, with two additions. Custom resources are
/// deleted before workloads, because one of the workloads may be the controller that removes the finalizers
/// of the custom resources. Definitions are deleted after all waves, and namespaces last.
pub fn deletion_stages(keys: impl IntoIterator<Item = (i64, Key)>) -> Vec<Vec<Key>> {
    let mut stages: BTreeMap<(Option<DeletionRank>, Reverse<i64>, DeletionRank), Vec<Key>> = BTreeMap::new();
    for (wave, key) in keys {
        let rank = deletion_rank(&key);
        let is_prerequisite = matches!(rank, DeletionRank::Definition | DeletionRank::Namespace);
        let stage =
            if is_prerequisite { (Some(rank), Reverse(0), rank) } else { (None, Reverse(wave), rank) };
        stages.entry(stage).or_default().push(key);
    }
    stages.into_values().collect()
}

/// How early a resource is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DeletionRank {
    Late,
    CustomResource,
    Workload,
    Config,
    Definition,
    Namespace,
}

fn deletion_rank(key: &Key) -> DeletionRank {
    match Rank::of(&key.group, &key.kind) {
        Rank::Late => DeletionRank::Late,
        Rank::Workload if is_built_in(&key.group) => DeletionRank::Workload,
        Rank::Workload => DeletionRank::CustomResource,
        Rank::Config | Rank::Binding => DeletionRank::Config,
        Rank::Priority if key.kind == "Namespace" => DeletionRank::Namespace,
        Rank::Priority => DeletionRank::Definition,
    }
}

/// Returns whether Kubernetes itself serves the group. The groups are listed, because their names follow no rule:
/// `gateway.networking.k8s.io` belongs to custom resources.
pub fn is_built_in(group: &str) -> bool {
    matches!(
        group,
        "" | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "apps"
            | "authentication.k8s.io"
            | "authorization.k8s.io"
            | "autoscaling"
            | "batch"
            | "certificates.k8s.io"
            | "coordination.k8s.io"
            | "discovery.k8s.io"
            | "events.k8s.io"
            | "extensions"
            | "flowcontrol.apiserver.k8s.io"
            | "networking.k8s.io"
            | "node.k8s.io"
            | "policy"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, name: &str, wave: Option<&str>) -> Object {
        let mut body = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
        if let Some(wave) = wave {
            body["metadata"]["annotations"] = json!({ WAVE: wave });
        }
        Object {
            identity: crate::shape::identify(&body).unwrap(),
            digest: crate::canonical::digest(&body),
            body,
        }
    }

    fn names<'a>(stages: &[Stage<'a>]) -> Vec<Vec<&'a str>> {
        stages
            .iter()
            .map(|stage| stage.objects.iter().map(|object| object.identity.name.as_str()).collect())
            .collect()
    }

    #[test]
    fn dependencies_are_applied_first() {
        let objects = [
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "webhook", None),
            object("apps/v1", "Deployment", "web", None),
            object("example.com/v1", "Widget", "widget", None),
            object("v1", "Service", "service", None),
            object("rbac.authorization.k8s.io/v1", "RoleBinding", "binding", None),
            object("rbac.authorization.k8s.io/v1", "Role", "role", None),
            object("v1", "ConfigMap", "settings", None),
            object("storage.k8s.io/v1", "StorageClass", "fast", None),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", None),
            object("v1", "Namespace", "shop", None),
        ];
        assert_eq!(
            names(&stages(&objects)),
            [
                vec!["widgets.example.com", "shop"],
                vec!["role", "settings", "fast"],
                vec!["binding"],
                vec!["web", "widget", "service"],
                vec!["webhook"],
            ]
        );
    }

    #[test]
    fn waves_are_barriers_and_namespaces_belong_to_the_first() {
        let objects = [
            object("apps/v1", "Deployment", "after", Some("5")),
            object("apps/v1", "Deployment", "web", None),
            object("batch/v1", "Job", "migrate", Some(" -1 ")),
            object("v1", "Secret", "credentials", Some("-1")),
            object("v1", "Namespace", "shop", None),
        ];
        assert_eq!(
            names(&stages(&objects)),
            [vec!["shop"], vec!["credentials"], vec!["migrate"], vec!["web"], vec!["after"]]
        );
    }

    #[test]
    fn custom_resources_are_deleted_before_their_controller_and_namespaces_last() {
        let keys = [
            "/Namespace//shop",
            "apiextensions.k8s.io/CustomResourceDefinition//widgets.example.com",
            "/ServiceAccount/shop/controller",
            "apps/Deployment/shop/controller",
            "example.com/Widget/shop/one",
            "gateway.networking.k8s.io/HTTPRoute/shop/web",
            "apiregistration.k8s.io/APIService//v1.example.com",
        ];
        let deleted = deletion_stages(keys.iter().map(|key| (0, key.parse().unwrap())));
        let deleted: Vec<Vec<String>> =
            deleted.iter().map(|stage| stage.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(
            deleted,
            [
                vec![keys[6]],
                vec![keys[4], keys[5]],
                vec![keys[3]],
                vec![keys[2]],
                vec![keys[1]],
                vec![keys[0]]
            ]
        );
    }

    #[test]
    fn waves_are_deleted_in_reverse_order_and_namespaces_after_all_of_them() {
        let keys = [
            (9, "/Namespace//shop"),
            (-1, "batch/Job/shop/migrate"),
            (0, "/ConfigMap/shop/settings"),
            (0, "apps/Deployment/shop/web"),
            (2, "/ConfigMap/shop/announcement"),
        ];
        let deleted = deletion_stages(keys.map(|(wave, key)| (wave, key.parse().unwrap())));
        let deleted: Vec<String> = deleted.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(deleted, [keys[4].1, keys[3].1, keys[2].1, keys[1].1, keys[0].1]);
    }
}

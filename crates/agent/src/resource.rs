//! Kinds of resources, and their paths at the API server.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use brokkr_api::reason::ObjectRef;
use brokkr_manifest::Key;
use hashbrown::Equivalent;
use serde::{Deserialize, Serialize};

use crate::intern::Interner;

/// The API group of the agent's own records.
pub const RECORD_GROUP: &str = "brokkr.io";

/// One served kind. Each inventory entry has it, so that the agent needs no discovery after a restart to find
/// its objects. It is a pointer, because all entries of the kind share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Served", into = "Served")]
pub struct Kind(Arc<Served>);

/// How a kind is served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Served {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
}

impl From<Served> for Kind {
    fn from(served: Served) -> Self {
        static KINDS: LazyLock<Interner<Served>> = LazyLock::new(Interner::default);
        Self(KINDS.intern(served))
    }
}

impl From<Kind> for Served {
    fn from(kind: Kind) -> Self {
        (*kind.0).clone()
    }
}

impl Deref for Kind {
    type Target = Served;
    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Kind {
    /// Returns the identity of the kind without the version, by which watches and keys are grouped.
    #[must_use]
    pub fn name(&self) -> KindName {
        KindName { group: self.group.clone(), kind: self.kind.clone() }
    }

    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns a path such as `/apis/apps/v1/namespaces/shop/deployments/web`.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    #[must_use]
    pub fn object_path(&self, key: &Key) -> String {
        self.path(key.namespace.as_deref(), Some(&key.name))
    }

    /// Returns whether the health of its objects depends on more than their metadata. For all other kinds, the agent
    /// reads and watches only metadata, so that the data of live Secrets never enters this process.
    #[must_use]
    pub fn is_observed_in_full(&self) -> bool {
        // The agent wrote its own records, so it knows their content.
        self.group != RECORD_GROUP && brokkr_health::reads_status(&self.group, &self.kind)
    }

    /// Returns whether its objects keep Pods running, which are expected not to end.
    #[must_use]
    pub fn keeps_pods_running(&self) -> bool {
        self.has_pods() && self.group != "batch"
    }

    /// Returns whether its objects have Pods.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        match self.group.as_str() {
            "apps" => matches!(self.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet"),
            "batch" => self.kind == "Job",
            "" => matches!(self.kind.as_str(), "Pod" | "ReplicationController"),
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

/// Group and kind, without the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindName {
    pub group: String,
    pub kind: String,
}

/// A borrowed [`KindName`], for lookups: a plan makes several for each object of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindRef<'a> {
    pub group: &'a str,
    pub kind: &'a str,
}

impl<'a> KindRef<'a> {
    #[must_use]
    pub fn of(key: &'a Key) -> Self {
        Self { group: &key.group, kind: &key.kind }
    }

    #[must_use]
    pub fn is_definition(self) -> bool {
        self.kind == "CustomResourceDefinition" && self.group == "apiextensions.k8s.io"
    }
}

impl Equivalent<KindName> for KindRef<'_> {
    fn equivalent(&self, name: &KindName) -> bool {
        self.group == name.group && self.kind == name.kind
    }
}

impl KindName {
    #[must_use]
    pub fn of(key: &Key) -> Self {
        Self { group: key.group.clone(), kind: key.kind.clone() }
    }

    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    #[must_use]
    pub fn is_definition(&self) -> bool {
        KindRef { group: &self.group, kind: &self.kind }.is_definition()
    }
}

/// A kind in one namespace; without a namespace if its objects have none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindIn {
    pub kind: Kind,
    pub namespace: Option<String>,
}

impl KindIn {
    /// Returns where an object of this kind is.
    #[must_use]
    pub fn of(key: &Key, kind: &Kind) -> Self {
        Self { kind: kind.clone(), namespace: key.namespace.clone() }
    }
}

/// Returns whether other objects may depend on it: Namespaces and definitions. They are deleted only if
/// Brokkr created them and they contain no objects of others (C6).
#[must_use]
pub fn is_prerequisite(key: &Key) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Returns whether it is a Job, the only kind whose objects complete.
#[must_use]
pub fn is_job(key: &Key) -> bool {
    key.group == "batch" && key.kind == "Job"
}

/// Returns the object that a key names, for reports.
#[must_use]
pub fn object_ref(key: &Key) -> ObjectRef {
    ObjectRef {
        group: key.group.clone(),
        kind: key.kind.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    }
}

/// Returns whether an object is in this Namespace, or in the group of this definition.
#[must_use]
pub fn is_contained_in(object: &Key, prerequisite: &Key) -> bool {
    let name = KindName::of(prerequisite);
    if name.is_namespace() {
        object.namespace.as_deref() == Some(&prerequisite.name)
    } else {
        // A definition is named `plural.group`.
        name.is_definition()
            && prerequisite.name.split_once('.').is_some_and(|(_, group)| group == object.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        let deployment = Kind::from(Served {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
            namespaced: true,
        });
        let key: Key = "apps/Deployment/shop/web".parse().unwrap();
        assert_eq!(deployment.object_path(&key), "/apis/apps/v1/namespaces/shop/deployments/web");
        let namespace = Kind::from(Served {
            group: String::new(),
            version: "v1".into(),
            kind: "Namespace".into(),
            plural: "namespaces".into(),
            namespaced: false,
        });
        let key: Key = "/Namespace//shop".parse().unwrap();
        assert_eq!(namespace.object_path(&key), "/api/v1/namespaces/shop");
        assert!(is_prerequisite(&key));
        assert!(deployment.has_pods());
    }

    #[test]
    fn f6_only_metadata_is_read_of_secrets_and_of_the_agents_own_records() {
        let is_observed_in_full = |group: &str, kind: &str| {
            let served = Served {
                group: group.into(),
                version: "v1".into(),
                kind: kind.into(),
                plural: String::new(),
                namespaced: true,
            };
            Kind::from(served).is_observed_in_full()
        };
        assert!(is_observed_in_full("apps", "Deployment"));
        assert!(is_observed_in_full("example.com", "Widget"));
        assert!(!is_observed_in_full("", "Secret"));
        assert!(!is_observed_in_full(RECORD_GROUP, "Stack"));
    }
}

//! How a kind of resource is addressed at the API server.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use brokkr_manifest::Key;
use serde::{Deserialize, Serialize};

use crate::health;
use crate::intern::Shelf;
use crate::inventory::wire;

/// One served kind. Kept with each inventory entry, so that a restart needs no discovery to find
/// again what it owns; so it is a pointer to what all entries of that kind share.
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
        static KINDS: LazyLock<Shelf<Served>> = LazyLock::new(Shelf::default);
        Self(KINDS.share(served))
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
    /// Identity of the kind across versions: what watches and keys are grouped by.
    #[must_use]
    pub fn name(&self) -> KindName {
        KindName { group: self.group.clone(), kind: self.kind.clone() }
    }

    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `/apis/apps/v1/namespaces/shop/deployments/web`
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

    /// Whether health is read from more than metadata. Everything else is watched by metadata alone,
    /// so that the data of live Secrets never enters this process.
    #[must_use]
    pub fn has_status(&self) -> bool {
        // Our own record says nothing that is not known here.
        self.group != wire::GROUP && health::reads_status(&self.group, &self.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

/// Group and kind, whatever the version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindName {
    pub group: String,
    pub kind: String,
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
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }
}

/// Namespaces and definitions: what others stand on, deleted only under the conditions of C6.
#[must_use]
pub fn is_ground(key: &Key) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
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
        assert!(is_ground(&key));
        assert!(deployment.has_status());
    }
}

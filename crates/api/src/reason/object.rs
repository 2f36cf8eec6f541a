//! A reference to a Kubernetes object.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reference to a Kubernetes object, independent of the API version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct ObjectRef {
    /// Empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Empty for all objects of the kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl ObjectRef {
    /// Returns the text fields, which the broker has to limit and clean when it receives a report.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.group, &mut self.kind, &mut self.name].into_iter().chain(self.namespace.as_mut())
    }

    #[must_use]
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }
}

/// `Deployment shop/web`, `Namespace shop`, `Deployment in namespace shop`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        match (namespace, name.is_empty()) {
            (Some(namespace), false) => write!(formatter, "{kind} {namespace}/{name}"),
            (Some(namespace), true) => write!(formatter, "{kind} in namespace {namespace}"),
            (None, false) => write!(formatter, "{kind} {name}"),
            (None, true) => formatter.write_str(kind),
        }
    }
}

//! A deployment object, parsed and resolved against the kinds that the API server serves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_manifest::Key;
use brokkr_manifest::order::Rank;
use jiff::Timestamp;
use serde_json::Value;

use crate::resource::{Kind, KindName};

/// One resource of a deployment object, resolved against the kinds that the API server serves.
#[derive(Clone, Debug)]
pub struct DesiredObject {
    pub kind: Kind,
    pub key: Key,
    pub body: Body,
    pub digest: Checksum,
    /// Objects are written by wave (from an annotation), and within a wave by rank (of their kind).
    pub wave: i64,
    pub rank: Rank,
    /// The kind that it defines, if it is a CustomResourceDefinition.
    pub defines: Option<KindName>,
    /// The role that it names, if it is a RoleBinding or ClusterRoleBinding.
    pub binds: Option<BoundRole>,
    /// Whether it is deleted and recreated if an immutable field has to change.
    pub replace: bool,
}

/// The role that a binding names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundRole {
    /// Without a role in the manifest, its name is empty.
    pub role: Key,
    /// Whether the same manifest contains the role.
    pub in_stack: bool,
}

/// An object of a manifest as JSON text, because a parsed tree would need ten times the memory while the
/// stack exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Arc<str>);

impl Body {
    #[must_use]
    pub fn new(object: &Value) -> Self {
        Self(object.to_string().into())
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A deployment object, verified and parsed.
#[derive(Clone, Debug)]
pub struct Content {
    pub sequence: SequenceId,
    pub checksum: Checksum,
    pub objects: BTreeMap<Key, Arc<DesiredObject>>,
    /// Kinds that a definition in the same content defines, with that definition.
    pub definitions: HashMap<KindName, Key>,
    pub fetched: Timestamp,
    pub verified: Timestamp,
}

/// Returns the kinds that these objects define.
#[must_use]
pub fn definitions(objects: &BTreeMap<Key, Arc<DesiredObject>>) -> HashMap<KindName, Key> {
    let defined = |desired: &Arc<DesiredObject>| Some((desired.defines.clone()?, desired.key.clone()));
    objects.values().filter_map(defined).collect()
}

/// The target of a stack, and its content once it is fetched.
#[derive(Clone, Debug)]
pub struct Goal {
    pub target: TargetStack,
    pub content: Option<Arc<Content>>,
    /// The content that was applied before; its objects are repaired until the new content is applied.
    pub fallback: Option<Arc<Content>>,
}

impl Goal {
    /// Returns the object as it was last applied, by this content or by the one before.
    #[must_use]
    pub fn as_applied(
        &self,
        key: &Key,
        digest: Option<Checksum>,
    ) -> Option<(&Arc<Content>, &Arc<DesiredObject>)> {
        [self.content.as_ref(), self.fallback.as_ref()].into_iter().flatten().find_map(|content| {
            let desired = content.objects.get(key).filter(|desired| Some(desired.digest) == digest)?;
            Some((content, desired))
        })
    }
}

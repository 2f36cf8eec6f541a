//! A deployment object, parsed and resolved against the kinds that the API server serves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_api::reason::Wave;
use brokkr_manifest::order::Rank;
use brokkr_manifest::{Hook, Key, Side};
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
    pub wave: Wave,
    pub rank: Rank,
    /// The kind that it defines, if it is a CustomResourceDefinition.
    pub defines: Option<KindName>,
    /// The role that it names, if it is a RoleBinding or ClusterRoleBinding.
    pub binds: Option<BoundRole>,
    /// Whether it is deleted and recreated if an immutable field has to change.
    pub replace: bool,
    /// The Helm hook that it is.
    pub hook: Option<Hook>,
}

impl DesiredObject {
    /// Returns whether it is deleted at the end of the delivery.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.hook.is_some_and(|hook| hook.delete_when_complete)
    }
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
    /// Hooks that are not for this phase: they are neither applied nor deleted.
    pub dormant: BTreeMap<Key, Arc<DesiredObject>>,
    /// Hooks that are never applied, with their events.
    pub left_out: Vec<(Key, String)>,
    /// Kinds that a definition in the same content defines, with that definition.
    pub definitions: HashMap<KindName, Key>,
    pub fetched: Timestamp,
    pub verified: Timestamp,
}

impl Content {
    /// Returns the content with the hooks of an install or an upgrade among its objects.
    #[must_use]
    pub fn in_phase(self: &Arc<Self>, is_install: bool) -> Arc<Self> {
        if self.objects.values().chain(self.dormant.values()).all(|desired| desired.hook.is_none()) {
            return self.clone();
        }
        let mut content = (**self).clone();
        let all =
            std::mem::take(&mut content.objects).into_iter().chain(std::mem::take(&mut content.dormant));
        for (key, desired) in all {
            let Some(hook) = desired.hook else {
                content.objects.insert(key, desired);
                continue;
            };
            let wave = match if is_install { hook.install } else { hook.upgrade } {
                Some(Side::Before) => Wave::HooksBefore(hook.weight),
                Some(Side::After) => Wave::HooksAfter(hook.weight),
                None => {
                    content.dormant.insert(key, desired);
                    continue;
                }
            };
            content.objects.insert(key, Arc::new(DesiredObject { wave, ..(*desired).clone() }));
        }
        Arc::new(content)
    }

    /// Returns whether the object stays at the end of the delivery.
    #[must_use]
    pub fn keeps(&self, key: &Key) -> bool {
        self.objects
            .get(key)
            .map_or_else(|| self.dormant.contains_key(key), |desired| !desired.is_temporary())
    }
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

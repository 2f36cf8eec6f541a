//! The ownership metadata that Brokkr puts on every object that it applies.
//!
//! Watches select by the label; the annotations name the stack that owns the object. The `id` annotation
//! names the resource itself, because controllers copy labels and annotations to child objects, and these
//! must not look like objects that Brokkr applied.

use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use serde_json::{Map, Value, json};

use crate::model::object::Uid;

pub const FIELD_MANAGER: &str = "brokkr";
pub const AGENT_LABEL: &str = "brokkr.io/agent";
pub const STACK_ID: &str = "brokkr.io/stack-id";
pub const CHECKSUM: &str = "brokkr.io/checksum";
pub const SEQUENCE: &str = "brokkr.io/sequence";
pub const ID: &str = "brokkr.io/id";
/// `keep`: a prune or removal leaves the object in the cluster.
pub const PRUNE: &str = "brokkr.io/prune";
/// `recreate`: the object may be deleted and created again if an immutable field changes.
pub const REPLACE: &str = "brokkr.io/replace";

/// The ownership metadata of every resource of one deployment object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub agent: AgentId,
    pub stack: StackId,
    pub checksum: Checksum,
    /// Changes only together with the checksum, so that a new version with the same content causes no writes.
    pub sequence: SequenceId,
}

/// Returns the body of an apply: the object of the manifest with our metadata. With a uid, the server refuses
/// the apply unless the object still has this uid.
#[must_use]
pub fn apply_metadata(body: Value, key: &Key, stamp: &Stamp, uid: Option<&Uid>) -> Value {
    let mut body = with_label(body, stamp.agent);
    let Some(root) = body.as_object_mut() else { return body };
    let metadata = object_in(root, "metadata");
    if let Some(namespace) = &key.namespace {
        metadata.insert("namespace".into(), json!(namespace));
    }
    if let Some(uid) = uid {
        metadata.insert("uid".into(), json!(uid));
    }
    let annotations = object_in(metadata, "annotations");
    annotations.insert(STACK_ID.into(), json!(stamp.stack.to_string()));
    annotations.insert(CHECKSUM.into(), json!(stamp.checksum.to_string()));
    annotations.insert(SEQUENCE.into(), json!(stamp.sequence.to_string()));
    annotations.insert(ID.into(), json!(key.to_string()));
    body
}

/// Returns the object of the manifest with the label by which watches select.
#[must_use]
pub fn with_label(mut body: Value, agent: AgentId) -> Value {
    if let Some(root) = body.as_object_mut() {
        let labels = object_in(object_in(root, "metadata"), "labels");
        labels.insert(AGENT_LABEL.into(), json!(agent.to_string()));
    }
    body
}

/// Returns a merge patch that removes our metadata and leaves everything else.
#[must_use]
pub fn remove_metadata(uid: &Uid) -> Value {
    json!({"metadata": {
        "uid": uid,
        "labels": {AGENT_LABEL: null},
        "annotations": {STACK_ID: null, CHECKSUM: null, SEQUENCE: null, ID: null},
    }})
}

fn object_in<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let slot = parent.entry(field).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("made an object above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b4_every_applied_resource_has_stack_id_and_checksum_in_addition_to_the_users_metadata() {
        let key: Key = "/ConfigMap/shop/settings".parse().unwrap();
        let stamp = Stamp {
            agent: AgentId::generate(),
            stack: StackId::generate(),
            checksum: Checksum::of(b"content"),
            sequence: SequenceId(7),
        };
        let body = json!({"kind": "ConfigMap", "metadata": {"name": "settings", "labels": {"app": "shop"}}});
        let applied = apply_metadata(body, &key, &stamp, Some(&"u-1".into()));
        let metadata = &applied["metadata"];
        assert_eq!(metadata["labels"]["app"], "shop");
        assert_eq!(metadata["labels"][AGENT_LABEL], stamp.agent.to_string());
        assert_eq!(metadata["annotations"][STACK_ID], stamp.stack.to_string());
        assert_eq!(metadata["annotations"][CHECKSUM], stamp.checksum.to_string());
        assert_eq!(metadata["annotations"][ID], "/ConfigMap/shop/settings");
        assert_eq!(metadata["namespace"], "shop");
        assert_eq!(metadata["uid"], "u-1");
    }
}

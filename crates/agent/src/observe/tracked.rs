//! One object as it comes from the API server, reduced while it is decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, Resource};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::health::{ObjectView, health, recheck_at};
use crate::marks;
use crate::plan::types::{Fingerprint, Seen};
use crate::resource::KindName;

/// An object of any kind. With `METADATA`, the API server is asked for metadata only.
#[derive(Clone, Debug)]
pub struct Tracked<const METADATA: bool> {
    /// Only what the watcher itself needs.
    meta: ObjectMeta,
    raw: Raw,
}

impl<const METADATA: bool> Tracked<METADATA> {
    /// Reduces the object. The kind is given, because the items of a list do not name theirs.
    #[must_use]
    pub fn into_seen(self, kind: &KindName, now: Timestamp) -> Seen {
        self.raw.reduce(kind, now)
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: RawMetadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMetadata {
    name: String,
    namespace: Option<String>,
    uid: String,
    resource_version: String,
    generation: Option<i64>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Vec<String>,
    owner_references: Vec<IgnoredAny>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    fields_v1: FieldsDigest,
}

impl Raw {
    fn reduce(self, kind: &KindName, now: Timestamp) -> Seen {
        let metadata = self.metadata;
        let view = ObjectView {
            group: &kind.group,
            kind: &kind.kind,
            generation: metadata.generation,
            deletion: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp,
            spec: &self.spec,
            status: &self.status,
        };
        let later = recheck_at(&view, now).map(|at| (at, health(&view, at)));
        let health = health(&view, now);
        let fields = metadata
            .managed_fields
            .iter()
            .find(|entry| {
                entry.manager == marks::FIELD_MANAGER
                    && entry.operation == "Apply"
                    && entry.subresource.is_empty()
            })
            .map(|entry| Fingerprint(format!("{}:{}", entry.api_version, entry.fields_v1.0)));
        let mut annotations = metadata.annotations;
        Seen {
            uid: metadata.uid,
            version: metadata.resource_version.parse().unwrap_or_default(),
            agent: metadata.labels.get(marks::AGENT_LABEL).cloned(),
            stack: annotations.remove(marks::STACK_ID),
            id: annotations.remove(marks::ID),
            checksum: annotations.remove(marks::CHECKSUM),
            keep: annotations.get(marks::PRUNE).is_some_and(|value| value == "keep"),
            has_owner: !metadata.owner_references.is_empty(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers,
            fields,
            health,
            later,
        }
    }

    fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.metadata.name.clone()),
            namespace: self.metadata.namespace.clone(),
            uid: Some(self.metadata.uid.clone()),
            resource_version: Some(self.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        }
    }
}

impl<'de, const METADATA: bool> Deserialize<'de> for Tracked<METADATA> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self { meta: raw.meta(), raw })
    }
}

impl<const METADATA: bool> Resource for Tracked<METADATA> {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }
    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }
    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }
    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }
    fn metadata_api() -> bool {
        METADATA
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The hash of a `fieldsV1` tree, taken while it is decoded: the tree itself is never built.
#[derive(Clone, Debug, Default)]
struct FieldsDigest(String);

impl<'de> Deserialize<'de> for FieldsDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut hash = Sha256::new();
        deserializer.deserialize_any(Feed(&mut hash))?;
        let digest = hash.finalize();
        Ok(Self(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

struct Feed<'a>(&'a mut Sha256);

impl<'de> serde::de::DeserializeSeed<'de> for Feed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Feed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.update(b"{");
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            self.0.update(key.as_bytes());
            self.0.update(b":");
            map.next_value_seed(Feed(self.0))?;
        }
        self.0.update(b"}");
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.update(b"[");
        while items.next_element_seed(Feed(self.0))?.is_some() {
            self.0.update(b",");
        }
        self.0.update(b"]");
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.update(text.as_bytes());
        Ok(())
    }
    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.update([u8::from(value)]);
        Ok(())
    }
    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.update(value.to_be_bytes());
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.update(b"null");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(fields: Value, other: Value) -> Seen {
        let text = json!({
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "42",
                "labels": {"brokkr.io/agent": "x"},
                "annotations": {"brokkr.io/stack-id": "s", "brokkr.io/id": "/ConfigMap/shop/a"},
                "managedFields": [
                    {"manager": "brokkr", "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields},
                    {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsV1": other},
                ],
            },
            "data": {"k": "never kept"},
        });
        let kind = KindName { group: String::new(), kind: "ConfigMap".into() };
        serde_json::from_value::<Tracked<true>>(text).unwrap().into_seen(&kind, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_fingerprint_changes_with_our_own_entry_and_with_nothing_else() {
        let ours = json!({"f:data": {".": {}, "f:k": {}}});
        let first = object(ours.clone(), json!({"f:data": {"f:x": {}}}));
        assert_eq!(first.version, 42);
        assert_eq!(first.fields, object(ours, json!({"f:data": {"f:y": {}}})).fields);
        assert_ne!(first.fields, object(json!({"f:data": {".": {}}}), json!({})).fields);
    }
}

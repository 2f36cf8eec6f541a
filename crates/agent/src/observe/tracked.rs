//! Reduces an object from the API server while it is decoded.
//!
//! No content of an object causes an error, because one malformed object must not hide the others of its
//! kind. A field with the wrong type counts as absent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use brokkr_api::health_rules::HealthRule;
use brokkr_health::{Health, ObjectView, decide, is_completed, recheck_at};
use brokkr_manifest::Key;
use brokkr_manifest::order::is_built_in;
use jiff::Timestamp;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::digest::FieldsDigest;
use crate::health_rules::HealthRules;
use crate::intern::Interner;
use crate::model::{Fingerprint, SeenObject, Uid};
use crate::ownership;
use crate::resource::KindName;

/// The annotation of the bookmark that follows the existing objects in a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Reads one object. The kind is a parameter, because the items of a list do not contain it.
pub fn read(
    body: &[u8],
    kind: &KindName,
    now: Timestamp,
    rules: &HealthRules,
) -> serde_json::Result<SeenObject> {
    let raw: Raw = serde_json::from_slice(body)?;
    if raw.is_nameless() {
        return Err(serde::de::Error::custom("an object without name or uid"));
    }
    Ok(raw.reduce(kind, now, rules))
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct Page {
    pub objects: Vec<(Key, SeenObject)>,
    pub version: String,
    /// Empty on the last page.
    pub next: String,
}

/// Reads a page object by object, so that at most one whole object is in memory.
pub fn read_page(
    body: &[u8],
    kind: &KindName,
    now: Timestamp,
    rules: &HealthRules,
) -> serde_json::Result<Page> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let page = PageOf { kind, now, rules }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(page)
}

/// One line of a watch.
#[derive(Debug)]
pub enum Line {
    Present(Key, SeenObject),
    /// With the last state of the object.
    Gone(Key, SeenObject),
    /// A bookmark: the version to resume from.
    Bookmark {
        initial_end: bool,
    },
    Error {
        code: u16,
        message: String,
    },
}

/// Reads a line, with the resourceVersion to resume from.
pub fn read_line(
    line: &[u8],
    kind: &KindName,
    now: Timestamp,
    rules: &HealthRules,
) -> serde_json::Result<(Line, String)> {
    let RawLine { r#type, object } = serde_json::from_slice(line)?;
    let version = object.metadata.resource_version.clone();
    let line = match r#type.as_str() {
        "BOOKMARK" => {
            Line::Bookmark { initial_end: object.metadata.annotations.contains_key(INITIAL_EVENTS_END) }
        }
        "ERROR" => Line::Error { code: object.code, message: object.message },
        _ if object.is_nameless() => Line::Error { code: 0, message: "an object without name or uid".into() },
        "DELETED" => Line::Gone(object.key(kind), object.reduce(kind, now, rules)),
        _ => Line::Present(object.key(kind), object.reduce(kind, now, rules)),
    };
    Ok((line, version))
}

#[derive(Deserialize)]
struct RawLine {
    r#type: String,
    object: Raw,
}

/// The relevant fields of objects, bookmarks and errors in a stream.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    metadata: RawMetadata,
    spec: Value,
    status: Value,
    #[serde(deserialize_with = "if_readable")]
    code: u16,
    #[serde(deserialize_with = "if_readable")]
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMetadata {
    #[serde(deserialize_with = "if_readable")]
    name: String,
    #[serde(deserialize_with = "if_readable")]
    namespace: Option<String>,
    #[serde(deserialize_with = "if_readable")]
    uid: String,
    #[serde(deserialize_with = "if_readable")]
    resource_version: String,
    #[serde(deserialize_with = "if_readable")]
    generation: Option<i64>,
    #[serde(deserialize_with = "if_readable")]
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(deserialize_with = "if_readable")]
    finalizers: Vec<String>,
    #[serde(deserialize_with = "if_readable")]
    owner_references: Vec<IgnoredAny>,
    #[serde(deserialize_with = "if_readable")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "if_readable")]
    annotations: BTreeMap<String, String>,
    /// Not buffered like the others, because it is the largest part of an object.
    managed_fields: Option<Vec<ManagedFields>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFields {
    #[serde(deserialize_with = "if_readable")]
    manager: String,
    #[serde(deserialize_with = "if_readable")]
    operation: String,
    #[serde(deserialize_with = "if_readable")]
    subresource: String,
    #[serde(deserialize_with = "if_readable")]
    api_version: String,
    #[serde(deserialize_with = "if_readable")]
    time: Option<Timestamp>,
    fields_v1: FieldsDigest,
}

fn if_readable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(reader: D) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<T> {
        Readable(T),
        Not(IgnoredAny),
    }
    Ok(match Either::deserialize(reader)? {
        Either::Readable(value) => value,
        Either::Not(_) => T::default(),
    })
}

impl Raw {
    fn is_nameless(&self) -> bool {
        self.metadata.name.is_empty() || self.metadata.uid.is_empty()
    }

    fn key(&self, kind: &KindName) -> Key {
        Key {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
        }
    }

    fn reduce(self, kind: &KindName, now: Timestamp, rules: &HealthRules) -> SeenObject {
        static VERDICTS: LazyLock<Interner<Health>> = LazyLock::new(Interner::default);
        let names_itself =
            self.metadata.annotations.get(ownership::ID).is_some_and(|id| *id == self.key(kind).to_string());
        let metadata = self.metadata;
        let view = ObjectView {
            group: &kind.group,
            kind: &kind.kind,
            generation: metadata.generation,
            deletion: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp,
            annotations: &metadata.annotations,
            spec: &self.spec,
            status: &self.status,
        };
        let stack = id_in(&metadata.annotations, ownership::STACK_ID);
        let given: Arc<[HealthRule]> =
            if is_built_in(&kind.group) { Arc::default() } else { rules.of(stack.as_ref()) };
        let health_at = |at| VERDICTS.intern(decide(&view, &given, at).health);
        let later = recheck_at(&view, &given, now).map(|at| Box::new((at, health_at(at))));
        let health = health_at(now);
        let completed = is_completed(&view);
        let entries = metadata.managed_fields.unwrap_or_default();
        let ours = entries.iter().find(|entry| entry.is_ours());
        let fields =
            ours.map(|entry| Fingerprint::of(&format!("{}:{}", entry.api_version, entry.fields_v1.0)));
        SeenObject {
            uid: metadata.uid.into(),
            version: metadata.resource_version.parse().unwrap_or_default(),
            agent: id_in(&metadata.labels, ownership::AGENT_LABEL),
            stack,
            names_itself,
            keep: metadata.annotations.get(ownership::PRUNE).is_some_and(|value| value == "keep"),
            has_owner: !metadata.owner_references.is_empty(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers,
            fields,
            health,
            later,
            sequence: metadata.annotations.get(ownership::SEQUENCE).and_then(|text| text.parse().ok()),
            completed,
        }
    }
}

fn id_in(values: &BTreeMap<String, String>, name: &str) -> Option<Uid> {
    values.get(name).map(|id| id.as_str().into())
}

impl ManagedFields {
    fn is_ours(&self) -> bool {
        self.manager == ownership::FIELD_MANAGER && self.operation == "Apply" && self.subresource.is_empty()
    }
}

/// Reads a list, and reduces each object before the next one is read.
#[derive(Clone, Copy)]
struct PageOf<'a> {
    kind: &'a KindName,
    now: Timestamp,
    rules: &'a HealthRules,
}

struct ItemsOf<'a>(PageOf<'a>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    r#continue: String,
}

impl<'de> DeserializeSeed<'de> for PageOf<'_> {
    type Value = Page;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Page, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageOf<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "metadata" => {
                    let metadata: PageMetadata = map.next_value()?;
                    (page.version, page.next) = (metadata.resource_version, metadata.r#continue);
                }
                "items" => {
                    page.objects = map.next_value_seed(ItemsOf(self))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(page)
    }
}

impl<'de> DeserializeSeed<'de> for ItemsOf<'_> {
    type Value = Vec<(Key, SeenObject)>;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsOf<'_> {
    type Value = Vec<(Key, SeenObject)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let PageOf { kind, now, rules } = self.0;
        let mut objects = Vec::new();
        while let Some(raw) = items.next_element::<Raw>()? {
            if !raw.is_nameless() {
                objects.push((raw.key(kind), raw.reduce(kind, now, rules)));
            }
        }
        Ok(objects)
    }

    /// The API server writes null for an empty list.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::ids::Checksum;
    use brokkr_health::HealthState;
    use serde_json::json;

    use super::*;
    use crate::health_rules::{RuleScope, parse};

    #[test]
    fn metadata_that_was_copied_from_another_object_does_not_count() {
        let read = |name: &str| {
            let text = json!({"metadata": {"name": name, "namespace": "shop", "uid": "u",
                "annotations": {"brokkr.io/id": "/ConfigMap/shop/a"}}});
            let kind = KindName { group: String::new(), kind: "ConfigMap".into() };
            read(text.to_string().as_bytes(), &kind, Timestamp::UNIX_EPOCH, &HealthRules::default()).unwrap()
        };
        assert!(read("a").names_itself);
        assert!(!read("b").names_itself);
    }

    fn object(fields: Value, other: Value) -> SeenObject {
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
            "data": {"k": "not stored"},
        });
        let kind = KindName { group: String::new(), kind: "ConfigMap".into() };
        read(text.to_string().as_bytes(), &kind, Timestamp::UNIX_EPOCH, &HealthRules::default()).unwrap()
    }

    #[test]
    fn the_fingerprint_changes_only_with_our_own_entry() {
        let ours = json!({"f:data": {".": {}, "f:k": {}}});
        let first = object(ours.clone(), json!({"f:data": {"f:x": {}}}));
        assert_eq!(first.version, 42);
        assert_eq!(first.fields, object(ours, json!({"f:data": {"f:y": {}}})).fields);
        assert_ne!(first.fields, object(json!({"f:data": {".": {}}}), json!({})).fields);
    }

    #[test]
    fn f6_the_rules_of_the_stack_decide_the_health_of_a_custom_kind() {
        let stack = brokkr_api::StackId::generate();
        let rule = json!([{"groups": ["a.example.com"], "kinds": ["Counter"],
            "failed": [{"field": "status.phase", "equals": "Broken", "message": "status.message"}],
            "ready": [{"field": "status.phase", "equals": "Counting"}]}])
        .to_string();
        let rules = HealthRules::default();
        let read = |rules: &HealthRules| {
            let text = json!({
                "metadata": {"name": "a", "namespace": "shop", "uid": "u",
                    "annotations": {"brokkr.io/stack-id": stack.to_string()}},
                "status": {"phase": "Broken", "message": "the wheel is stuck"},
            });
            let kind = KindName { group: "a.example.com".into(), kind: "Counter".into() };
            let seen = read(text.to_string().as_bytes(), &kind, Timestamp::UNIX_EPOCH, rules).unwrap();
            (seen.health.state, seen.health.message.to_string())
        };
        assert_eq!(read(&rules).0, HealthState::Ready);
        let set = parse(rule.as_bytes(), Checksum::of(rule.as_bytes())).unwrap();
        rules.set(RuleScope::Stack(stack), Some(set));
        assert_eq!(read(&rules), (HealthState::Failed, "the wheel is stuck".to_owned()));
        rules.set(RuleScope::Stack(stack), None);
        assert_eq!(read(&rules).0, HealthState::Ready);
    }
}

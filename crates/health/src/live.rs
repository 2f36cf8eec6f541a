//! Objects as the API server returns them, for callers that have the whole of them.

use std::collections::BTreeMap;

use brokkr_manifest::Identity;
use jiff::Timestamp;
use serde_json::Value;

use super::verdict::ObjectView;

/// The parts of an object on which its health depends.
#[derive(Clone, Debug)]
pub struct LiveObject {
    group: String,
    kind: String,
    generation: Option<i64>,
    deletion: bool,
    created: Option<Timestamp>,
    annotations: BTreeMap<String, String>,
    spec: Value,
    status: Value,
}

impl LiveObject {
    /// Takes these parts from an object. A field with the wrong type counts as absent.
    #[must_use]
    pub fn new(identity: &Identity, mut body: Value) -> Self {
        let metadata = body.get("metadata").unwrap_or(&Value::Null);
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        let annotations = metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
        let annotations =
            annotations.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        Self {
            group: identity.group.clone(),
            kind: identity.kind.clone(),
            generation: metadata.get("generation").and_then(Value::as_i64),
            deletion: text("deletionTimestamp").is_some(),
            created: text("creationTimestamp").and_then(|time| time.parse().ok()),
            annotations: annotations.collect(),
            spec: taken(&mut body, "spec"),
            status: taken(&mut body, "status"),
        }
    }

    #[must_use]
    pub fn view(&self) -> ObjectView<'_> {
        ObjectView {
            group: &self.group,
            kind: &self.kind,
            generation: self.generation,
            deletion: self.deletion,
            created: self.created,
            annotations: &self.annotations,
            spec: &self.spec,
            status: &self.status,
        }
    }
}

fn taken(body: &mut Value, field: &str) -> Value {
    body.get_mut(field).map(Value::take).unwrap_or_default()
}

//! Removes secret values from objects before they are shown in diffs, logs and the console.

use serde_json::{Map, Value};

use crate::normal::is_secret;

/// Replaces a hidden value.
pub const HIDDEN: &str = "<redacted>";

/// Annotations with the whole object as text, which include the values of a Secret. Hidden on all kinds.
const LAST_APPLIED: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original"];

/// Returns a copy without secret values. Keys are kept, so that a reader still sees which values exist or have changed.
/// Lists are redacted item by item.
pub fn redacted(value: &Value) -> Value {
    let mut copy = value.clone();
    redact(&mut copy);
    copy
}

fn redact(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    if let Some(Value::Array(items)) = fields.get_mut("items") {
        items.iter_mut().for_each(redact);
    }
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    let group = fields.get("apiVersion").and_then(Value::as_str).and_then(|version| version.split_once('/'));
    if is_secret(group.map_or("", |(group, _)| group), kind) {
        for field in ["data", "stringData"] {
            if let Some(data) = fields.get_mut(field) {
                hide_all(data);
            }
        }
    }
    if let Some(Value::Object(annotations)) =
        fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    {
        hide_last_applied(annotations);
    }
}

fn hide_all(data: &mut Value) {
    match data {
        Value::Object(values) => {
            for value in values.values_mut() {
                *value = Value::String(HIDDEN.to_owned());
            }
        }
        Value::Null => {}
        // Malformed, so it may be a secret that was pasted by mistake.
        other => *other = Value::String(HIDDEN.to_owned()),
    }
}

fn hide_last_applied(annotations: &mut Map<String, Value>) {
    for name in LAST_APPLIED {
        if let Some(value) = annotations.get_mut(name) {
            *value = Value::String(HIDDEN.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_values_of_a_secret_are_hidden_and_its_keys_are_kept() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "s",
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "note": "kept" },
            },
            "data": { "password": "hunter2" }, "stringData": { "pin": 42 },
        });
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [secret] });
        for value in [redacted(&secret), redacted(&list)["items"][0].clone()] {
            let text = value.to_string();
            assert!(!text.contains("hunter2") && !text.contains("42"), "{text}");
            assert_eq!(value["data"]["password"], HIDDEN);
            assert_eq!(value["metadata"]["annotations"]["note"], "kept");
        }
    }

    #[test]
    fn other_kinds_are_not_changed() {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "a": "b" } });
        assert_eq!(redacted(&map), map);
        let other = json!({ "apiVersion": "example.com/v1", "kind": "Secret", "data": { "a": "b" } });
        assert_eq!(redacted(&other), other);
    }
}

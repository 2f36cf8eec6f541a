//! What other clients have changed in an object that the agent left alone, as a strategic merge patch.
//!
//! The API server keeps, for each field, who set it. A field of the manifest that is no longer ours was changed or removed by another
//! client; a field that is not in the manifest was added if another client has set it since the suspension began. So defaults and
//! other spellings of the same value are no edits.
//!
//! While a patch is collected, an item of a list is a field with the name that `managedFields` uses for it, `k:{"name":"web"}`: then
//! two patches are merged like maps. At the end, such maps become lists again.

use brokkr_api::AgentId;
use brokkr_api::suspensions::LONGEST_PATCH;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ownership::{FIELD_MANAGER, with_label};
use crate::yields;

/// Stands for a value of a Secret, which never leaves the cluster.
const HIDDEN: &str = "(not shown)";
/// kubectl stores the whole object in this annotation, also the values of a Secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// `managedFields` have full seconds.
const PRECISION: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Returns what other clients have changed since this time in the object of this manifest; none if it is too large to be sent.
#[must_use]
pub fn edits(manifest: &Value, live: &Value, since: Timestamp) -> Option<Value> {
    let entries: Vec<&Value> = yields::entries(live).filter(|entry| is_of_object(entry)).collect();
    let ours = entries.iter().find(|entry| is_ours(entry)).map(|entry| &entry["fieldsV1"]);
    let mut tree = changed(&editable(manifest), Some(live), ours).unwrap_or_else(|| json!({}));
    let since = since - PRECISION;
    let recent = |entry: &&&Value| {
        let time = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        !is_ours(entry) && time.is_none_or(|time| time >= since)
    };
    for entry in entries.iter().filter(recent) {
        let fields = editable(&entry["fieldsV1"]);
        if let Some(added) = added(&fields, live, Some(manifest)) {
            merge(&mut tree, added);
        }
    }
    for path in brokkr_manifest::yields::paths(manifest).unwrap_or_default() {
        yields::take_path(&mut tree, &path);
    }
    let mut patch = as_patch(tree);
    if manifest["kind"] == "Secret" {
        hide(&mut patch);
    }
    (patch.to_string().len() <= LONGEST_PATCH).then_some(patch)
}

/// Returns what other clients have changed or removed of what the manifest says, and of the label without which no watch of this agent
/// shows the object.
#[must_use]
pub fn changes(manifest: &Value, live: &Value, agent: AgentId) -> Value {
    let manifest = &with_label(manifest.clone(), agent);
    let ours = yields::entries(live).find(|entry| is_ours(entry)).map(|entry| &entry["fieldsV1"]);
    let mut tree = changed(&editable(manifest), Some(live), ours).unwrap_or_else(|| json!({}));
    for path in brokkr_manifest::yields::paths(manifest).unwrap_or_default() {
        yields::take_path(&mut tree, &path);
    }
    let mut patch = as_patch(tree);
    if manifest["kind"] == "Secret" {
        hide(&mut patch);
    }
    patch
}

/// Returns whether the entry is about the object itself. A change of the number of replicas is, whichever way it was made.
fn is_of_object(entry: &Value) -> bool {
    matches!(entry["subresource"].as_str(), None | Some("" | "scale"))
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply"
}

/// Returns a manifest or tree of fields without what no client edits by hand.
fn editable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        for name in ["apiVersion", "kind", "status", "f:status"] {
            fields.remove(name);
        }
        for (name, kept) in [
            ("metadata", ["labels", "annotations", "finalizers"]),
            ("f:metadata", ["f:labels", "f:annotations", "f:finalizers"]),
        ] {
            if let Some(metadata) = fields.get_mut(name).and_then(Value::as_object_mut) {
                metadata.retain(|name, _| kept.contains(&name.as_str()));
                let annotations = metadata.get_mut(kept[1]).and_then(Value::as_object_mut);
                annotations.into_iter().for_each(|all| all.retain(|name, _| !name.ends_with(LAST_APPLIED)));
            }
        }
    }
    object
}

/// Returns the live values of fields in the manifest that are no longer ours; null for those that are gone.
fn changed(manifest: &Value, live: Option<&Value>, ours: Option<&Value>) -> Option<Value> {
    if ours.is_some_and(yields::is_leaf) || live == Some(manifest) {
        return None;
    }
    match (manifest, live) {
        (Value::Object(fields), Some(live @ Value::Object(_))) => {
            let of = |name: &String, value| {
                changed(value, live.get(name), ours.and_then(|ours| ours.get(format!("f:{name}"))))
            };
            let found = fields.iter().filter_map(|(name, value)| Some((name.clone(), of(name, value)?)));
            not_empty(found.collect())
        }
        (Value::Array(items), Some(Value::Array(others))) => {
            let Some(keys) =
                ours.and_then(Value::as_object).filter(|ours| ours.keys().any(|key| key.starts_with("k:")))
            else {
                return Some(Value::Array(others.clone()));
            };
            let names = key_names(keys);
            let of = |item: &Value| {
                let key = keys.keys().find(|key| is_item(item, key)).cloned();
                let key = key.unwrap_or_else(|| key_of(item, &names));
                let other = others.iter().find(|other| is_item(other, &key));
                let change = match other {
                    None => Value::Null,
                    Some(other) => changed(item, Some(other), keys.get(&key))?,
                };
                Some((key, change))
            };
            not_empty(items.iter().filter_map(of).collect())
        }
        // Below a field of ours that is not a leaf, there is always one that is ours.
        (_, Some(_)) if ours.is_some() => None,
        (_, other) => Some(other.cloned().unwrap_or_default()),
    }
}

/// Returns the live values of another manager's fields that the manifest does not have.
fn added(fields: &Value, live: &Value, manifest: Option<&Value>) -> Option<Value> {
    let mut found = Map::new();
    for (name, below) in fields.as_object()? {
        let (live, manifest, name) = if let Some(name) = name.strip_prefix("f:") {
            (live.get(name), manifest.and_then(|manifest| manifest.get(name)), name)
        } else if name.starts_with("k:") {
            let item = |list: &'_ Value| list.as_array()?.iter().find(|item| is_item(item, name)).cloned();
            // Items are copied, because both lists are searched in the same way.
            let (live, manifest) = (item(live), manifest.and_then(item));
            if let Some(added) = live.and_then(|live| added(below, &live, manifest.as_ref())) {
                found.insert(name.clone(), added);
            }
            continue;
        } else {
            continue;
        };
        let Some(live) = live else { continue };
        let value = match manifest {
            Some(manifest) if yields::is_leaf(below) => new_keys(live, manifest),
            None if yields::is_leaf(below) => Some(live.clone()),
            manifest => added(below, live, manifest),
        };
        found.extend(value.map(|value| (name.to_owned(), value)));
    }
    not_empty(found)
}

/// Returns what was added to a map that is owned as a whole.
fn new_keys(live: &Value, manifest: &Value) -> Option<Value> {
    let (live, manifest) = (live.as_object()?, manifest.as_object()?);
    let new = live.iter().filter(|(name, _)| !manifest.contains_key(*name));
    not_empty(new.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn not_empty(fields: Map<String, Value>) -> Option<Value> {
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Returns the fields that a key such as `k:{"name":"web"}` consists of.
fn fields_of(key: &str) -> Map<String, Value> {
    let fields = key.strip_prefix("k:").and_then(|fields| serde_json::from_str(fields).ok());
    fields.unwrap_or_default()
}

fn key_names(keys: &Map<String, Value>) -> Vec<String> {
    let first = keys.keys().find(|key| key.starts_with("k:"));
    first.map(|key| fields_of(key).into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

fn key_of(item: &Value, names: &[String]) -> String {
    let fields: Map<String, Value> =
        names.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone()))).collect();
    format!("k:{}", Value::Object(fields))
}

/// Returns whether the item has this key. A field that it does not set has a default, such as the protocol of a port.
fn is_item(item: &Value, key: &str) -> bool {
    fields_of(key).iter().all(|(name, value)| item.get(name).is_none_or(|found| found == value))
}

fn merge(tree: &mut Value, more: Value) {
    match (tree, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (name, value) in more {
                merge(fields.entry(name).or_insert(Value::Null), value);
            }
        }
        (tree @ Value::Null, more) => *tree = more,
        _ => {}
    }
}

/// Turns maps of items into lists. An item that is gone is deleted, as strategic merge patches say it.
fn as_patch(tree: Value) -> Value {
    let Value::Object(fields) = tree else { return tree };
    if !fields.keys().any(|name| name.starts_with("k:{")) {
        return fields.into_iter().map(|(name, value)| (name, as_patch(value))).collect();
    }
    let item = |(key, value): (String, Value)| {
        let mut item = fields_of(&key);
        match as_patch(value) {
            Value::Object(fields) => item.extend(fields),
            _ => {
                item.insert("$patch".to_owned(), json!("delete"));
            }
        }
        Value::Object(item)
    };
    Value::Array(fields.into_iter().map(item).collect())
}

/// Hides the values of a Secret, also in annotations, which may repeat them. Which of its keys were removed is shown.
fn hide(patch: &mut Value) {
    for field in ["/data", "/stringData", "/metadata/annotations"] {
        let values = patch.pointer_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(Map::values_mut).filter(|value| !value.is_null()) {
            *value = json!(HIDDEN);
        }
    }
}

#[cfg(test)]
mod tests;

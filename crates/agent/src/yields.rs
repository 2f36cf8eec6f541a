//! Decides which yielded fields (`brokkr.io/yield`) are part of an apply to an existing object.
//!
//! Omitting them is not enough: the server removes a field that its only owner no longer sends, and
//! `spec.replicas` would fall back to 1. So the current owner of a field decides. If another manager owns it,
//! it is omitted. If only we own it, it is sent with its live value. In both cases its value stays, whatever
//! the manifest says.
//!
//! Another manager may take the field over between the read and the apply. So the apply contains the
//! resourceVersion of the read.

use brokkr_manifest::yields::{FieldPath, PathStep};
use serde_json::{Map, Value, json};

use crate::ownership::FIELD_MANAGER;

/// Returns the body to apply to the `live` object, with its resourceVersion, so that the server refuses the
/// apply if the object has changed.
#[must_use]
pub fn yielded(mut body: Value, live: &Value, paths: &[FieldPath]) -> Value {
    for path in paths {
        for steps in expanded(path.steps(), &[&body, live]) {
            match keep(live, &steps) {
                Some(value) => put(&mut body, &steps, value),
                None => take(&mut body, &steps),
            }
        }
    }
    if let Some(version) = live.pointer("/metadata/resourceVersion") {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    body
}

/// Removes the fields of a path, and the enclosing maps that become empty. Also removes them from a map that has items of lists
/// under the names that `managedFields` use for them, `k:{"name":"web"}`.
pub(crate) fn take_path(value: &mut Value, path: &FieldPath) {
    for steps in expanded(path.steps(), &[&*value]) {
        take(value, &steps);
    }
}

/// Replaces a pattern of keys by the keys in these values that it matches.
fn expanded(steps: &[PathStep], values: &[&Value]) -> Vec<Vec<PathStep>> {
    let Some((pattern @ PathStep::Keys(_), above)) = steps.split_last() else { return vec![steps.to_vec()] };
    let maps = values.iter().filter_map(|value| found(value, above)?.as_object());
    let mut keys: Vec<&String> = maps.flat_map(Map::keys).filter(|key| pattern.is_key(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let with = |key: &String| above.iter().cloned().chain([PathStep::Field(key.clone())]).collect();
    keys.into_iter().map(with).collect()
}

fn found<'a>(value: &'a Value, steps: &[PathStep]) -> Option<&'a Value> {
    steps.iter().try_fold(value, |value, step| match (step, value) {
        (PathStep::Field(name), value) => value.get(name),
        (_, Value::Array(items)) => items.iter().find(|item| step.is_item(item)),
        (_, Value::Object(fields)) => item_of(fields, step).map(|(_, item)| item),
        _ => None,
    })
}

/// Returns the item of a list in a map with the names that `managedFields` use.
fn item_of<'a>(fields: &'a Map<String, Value>, step: &PathStep) -> Option<(&'a String, &'a Value)> {
    fields.iter().find(|(name, _)| key_of(name).is_some_and(|key| step.is_item(&key)))
}

/// Returns the fields of a name such as `k:{"name":"web"}`.
fn key_of(name: &str) -> Option<Value> {
    serde_json::from_str(name.strip_prefix("k:")?).ok()
}

/// Returns the part of the live value that must be sent so that nothing changes. Maps and lists are split, because each
/// of their fields and items may have another owner.
fn keep(live: &Value, steps: &[PathStep]) -> Option<Value> {
    let value = found(live, steps)?;
    let below = |step: PathStep| steps.iter().cloned().chain([step]).collect::<Vec<_>>();
    if !is_whole(live, steps) {
        if let Value::Object(fields) = value {
            let of = |name: &String| Some((name.clone(), keep(live, &below(PathStep::Field(name.clone())))?));
            let kept: Map<String, Value> = fields.keys().filter_map(of).collect();
            return (!kept.is_empty()).then_some(Value::Object(kept));
        }
        let items = items(live, steps);
        if value.is_array() && !items.is_empty() {
            let of = |key: &Map<String, Value>| {
                let mut item = key.clone();
                if let Value::Object(fields) = keep(live, &below(item_step(key)))? {
                    item.extend(fields);
                }
                Some(Value::Object(item))
            };
            let kept: Vec<Value> = items.iter().filter_map(of).collect();
            return (!kept.is_empty()).then_some(Value::Array(kept));
        }
    }
    let (ours, theirs) = owners(live, steps);
    (ours && !theirs).then(|| value.clone())
}

/// Returns the keys of the owned items of a list.
fn items(live: &Value, steps: &[PathStep]) -> Vec<Map<String, Value>> {
    let lists = entries(live).filter_map(|entry| find(&entry["fieldsV1"], steps)?.as_object());
    let mut keys = Vec::new();
    for key in lists.flat_map(Map::keys).filter_map(|name| key_of(name)) {
        if let Value::Object(key) = key
            && !keys.contains(&key)
        {
            keys.push(key);
        }
    }
    keys
}

fn item_step(key: &Map<String, Value>) -> PathStep {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    PathStep::Item(key.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}

/// Returns whether this map or list is owned as a whole.
fn is_whole(live: &Value, steps: &[PathStep]) -> bool {
    entries(live).any(|entry| find(&entry["fieldsV1"], steps).is_some_and(is_leaf))
}

/// Returns whether the field is ours, and whether it is another manager's.
fn owners(live: &Value, steps: &[PathStep]) -> (bool, bool) {
    let (mut ours, mut theirs) = (false, false);
    for entry in entries(live).filter(|entry| owns(&entry["fieldsV1"], steps)) {
        if entry["manager"] == FIELD_MANAGER { ours = true } else { theirs = true }
    }
    (ours, theirs)
}

pub(crate) fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

/// Returns whether a tree of fields contains the path, or owns a field above it as a whole.
fn owns(fields: &Value, steps: &[PathStep]) -> bool {
    (1..=steps.len()).any(|depth| {
        find(fields, &steps[..depth]).is_some_and(|found| depth == steps.len() || is_leaf(found))
    })
}

fn find<'a>(fields: &'a Value, steps: &[PathStep]) -> Option<&'a Value> {
    steps.iter().try_fold(fields, |fields, step| match step {
        PathStep::Field(name) => fields.get(format!("f:{name}")),
        _ => item_of(fields.as_object()?, step).map(|(_, item)| item),
    })
}

pub(crate) fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_some_and(Map::is_empty)
}

/// Removes the field or item, and the enclosing maps and lists that become empty.
fn take(value: &mut Value, steps: &[PathStep]) {
    let Some((last, above)) = steps.split_last() else { return };
    let parent = above.iter().try_fold(&mut *value, step_into);
    let is_empty = match (parent, last) {
        (Some(Value::Object(fields)), PathStep::Field(name)) => {
            fields.remove(name).is_some() && fields.is_empty()
        }
        (Some(Value::Object(fields)), _) => {
            let name = item_of(fields, last).map(|(name, _)| name.clone());
            name.is_some_and(|name| fields.remove(&name).is_some()) && fields.is_empty()
        }
        (Some(Value::Array(items)), _) => {
            let at = items.iter().position(|item| last.is_item(item));
            at.map(|at| items.remove(at)).is_some() && items.is_empty()
        }
        _ => false,
    };
    if is_empty {
        take(value, above);
    }
}

fn step_into<'a>(value: &'a mut Value, step: &PathStep) -> Option<&'a mut Value> {
    match (step, value) {
        (PathStep::Field(name), value) => value.get_mut(name),
        (_, Value::Array(items)) => items.iter_mut().find(|item| step.is_item(item)),
        (_, Value::Object(fields)) => {
            let name = item_of(fields, step)?.0.clone();
            fields.get_mut(&name)
        }
        _ => None,
    }
}

/// Sets the field or item. An item keeps its place in the list, because another order is a change.
fn put(value: &mut Value, steps: &[PathStep], field: Value) {
    let Some((first, below)) = steps.split_first() else {
        *value = field;
        return;
    };
    let next = match first {
        PathStep::Field(name) => {
            if value.is_null() {
                *value = json!({});
            }
            let Some(fields) = value.as_object_mut() else { return };
            fields.entry(name).or_insert(Value::Null)
        }
        PathStep::Item(keys) => {
            if value.is_null() {
                *value = json!([]);
            }
            let Some(items) = value.as_array_mut() else { return };
            let key = || keys.iter().map(|(key, value)| (key.clone(), typed(&field, key, value)));
            let at = items.iter().position(|item| first.is_item(item)).unwrap_or(items.len());
            if at == items.len() {
                items.push(key().collect());
            }
            if below.is_empty() {
                let fields = field.as_object().cloned().unwrap_or_default();
                items[at] = key().chain(fields).collect();
                return;
            }
            &mut items[at]
        }
        PathStep::Keys(_) => return,
    };
    put(next, below, field);
}

/// Returns the value of an item's key: as in the item itself, if it is known there.
fn typed(item: &Value, key: &str, text: &str) -> Value {
    let known = item.get(key).cloned();
    known.unwrap_or_else(|| text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)))
}

#[cfg(test)]
mod tests {
    use brokkr_manifest::yields::{YIELD, paths};

    use super::*;

    fn manifest(yields: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {YIELD: yields}}, "spec": spec,
        })
    }

    fn entry(manager: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "fieldsV1": fields})
    }

    fn live(spec: Value, entries: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": "41", "managedFields": entries}, "spec": spec})
    }

    /// Returns the `spec` that would be applied.
    #[track_caller]
    fn sends(manifest: &Value, live: &Value) -> Value {
        let sent = yielded(manifest.clone(), live, &paths(manifest).unwrap());
        assert_eq!(sent["metadata"]["resourceVersion"], "41");
        assert_eq!(sent["metadata"]["name"], "web");
        sent["spec"].clone()
    }

    const REPLICAS: &str = "spec.replicas";

    #[test]
    fn fields_that_another_manager_has_taken_over_are_left_out() {
        let manifest = manifest(REPLICAS, json!({"replicas": 2, "paused": false}));
        let ours = entry(FIELD_MANAGER, json!({"f:spec": {"f:paused": {}}}));
        let scaler = entry("autoscaler", json!({"f:spec": {"f:replicas": {}}}));
        let scaled = live(json!({"replicas": 7, "paused": false}), &[ours, scaler.clone()]);
        assert_eq!(sends(&manifest, &scaled), json!({"paused": false}));
        // Shared: if we omit it, the other manager still owns it.
        let both = entry(FIELD_MANAGER, json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(
            sends(&manifest, &live(json!({"replicas": 2}), &[both, scaler])),
            json!({"paused": false})
        );
    }

    #[test]
    fn fields_that_only_we_own_are_sent_with_their_live_value() {
        let ours = entry(FIELD_MANAGER, json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
        let other = entry("kubectl", json!({"f:spec": {"f:minReadySeconds": {}}}));
        let object = live(json!({"replicas": 2, "paused": false}), &[ours, other]);
        let newer = manifest(REPLICAS, json!({"replicas": 5, "paused": true}));
        assert_eq!(sends(&newer, &object), json!({"replicas": 2, "paused": true}));
        // No longer in the manifest: the server would remove it if we omitted it.
        let without = manifest(REPLICAS, json!({"paused": true}));
        assert_eq!(sends(&without, &object), json!({"replicas": 2, "paused": true}));
    }

    #[test]
    fn fields_without_an_owner_and_missing_fields_are_not_sent() {
        let manifest = manifest(REPLICAS, json!({"replicas": 5}));
        assert_eq!(sends(&manifest, &live(json!({"replicas": 1}), &[])), Value::Null);
        assert_eq!(sends(&manifest, &live(json!({}), &[])), Value::Null);
    }

    #[test]
    fn maps_are_split_by_owner_unless_they_are_owned_as_a_whole() {
        let manifest = manifest("spec.limits", json!({"limits": {"a": 1, "b": 1}, "paused": true}));
        let ours = entry(FIELD_MANAGER, json!({"f:spec": {"f:limits": {".": {}, "f:a": {}}}}));
        let theirs = entry("tuner", json!({"f:spec": {"f:limits": {"f:b": {}, "f:c": {}}}}));
        let object = live(json!({"limits": {"a": 1, "b": 9, "c": 9}}), &[ours, theirs]);
        assert_eq!(sends(&manifest, &object), json!({"limits": {"a": 1}, "paused": true}));
        let whole = |manager| entry(manager, json!({"f:spec": {"f:limits": {}}}));
        let spec = || json!({"limits": {"a": 3}});
        let ours = live(spec(), &[whole(FIELD_MANAGER)]);
        assert_eq!(sends(&manifest, &ours), json!({"limits": {"a": 3}, "paused": true}));
        assert_eq!(sends(&manifest, &live(spec(), &[whole("tuner")])), json!({"paused": true}));
    }

    fn containers(list: Value) -> Value {
        json!({ "template": { "spec": { "containers": list } } })
    }

    fn of_containers(fields: Value) -> Value {
        json!({ "f:spec": { "f:template": { "f:spec": { "f:containers": fields } } } })
    }

    const IMAGE: &str = "spec.template.spec.containers[name=app].image";

    #[test]
    fn b3_a_field_of_a_list_item_that_another_manager_has_taken_over_is_left_out() {
        let manifest = manifest(IMAGE, containers(json!([{ "name": "app", "image": "a:2", "tty": true }])));
        let key = r#"k:{"name":"app"}"#;
        let ours =
            entry(FIELD_MANAGER, of_containers(json!({ key: { ".": {}, "f:name": {}, "f:tty": {} } })));
        let theirs = entry("updater", of_containers(json!({ key: { "f:image": {} } })));
        let updated = containers(json!([{ "name": "app", "image": "a:9", "tty": true }]));
        let sent = sends(&manifest, &live(updated.clone(), &[ours, theirs]));
        assert_eq!(sent, containers(json!([{ "name": "app", "tty": true }])));
        // Only ours: it stays as it is.
        let alone = entry(
            FIELD_MANAGER,
            of_containers(json!({ key: { ".": {}, "f:name": {}, "f:image": {}, "f:tty": {} } })),
        );
        assert_eq!(sends(&manifest, &live(updated.clone(), &[alone])), updated);
    }

    #[test]
    fn b3_a_whole_item_is_yielded_and_the_parts_that_only_we_own_stay() {
        let manifest = manifest(
            "spec.template.spec.containers[name=proxy]",
            containers(
                json!([{ "name": "app", "image": "a:1" }, { "name": "proxy", "image": "p:1", "tty": true }]),
            ),
        );
        let key = r#"k:{"name":"proxy"}"#;
        let ours =
            entry(FIELD_MANAGER, of_containers(json!({ key: { ".": {}, "f:name": {}, "f:tty": {} } })));
        let theirs = entry("mesh", of_containers(json!({ key: { "f:image": {} } })));
        let object = live(
            containers(
                json!([{ "name": "app", "image": "a:1" }, { "name": "proxy", "image": "p:7", "tty": true }]),
            ),
            &[ours, theirs.clone()],
        );
        let sent = containers(json!([{ "name": "app", "image": "a:1" }, { "name": "proxy", "tty": true }]));
        assert_eq!(sends(&manifest, &object), sent);
        let gone = live(containers(json!([{ "name": "app", "image": "a:1" }])), &[theirs]);
        assert_eq!(sends(&manifest, &gone), containers(json!([{ "name": "app", "image": "a:1" }])));
    }

    #[test]
    fn b3_annotations_are_yielded_by_pattern_and_those_of_brokkr_never() {
        let mut manifest = manifest("metadata.annotations[example.com/*]", json!({ "paused": true }));
        manifest["metadata"]["annotations"]["example.com/weight"] = json!("1");
        manifest["metadata"]["annotations"]["other"] = json!("1");
        let theirs = entry(
            "mesh",
            json!({ "f:metadata": { "f:annotations": { "f:example.com/weight": {}, "f:example.com/x": {} } } }),
        );
        let ours = entry(
            FIELD_MANAGER,
            json!({ "f:metadata": { "f:annotations": { "f:other": {}, "f:example.com/old": {} } } }),
        );
        let mut object = live(json!({ "paused": true }), &[theirs, ours]);
        object["metadata"]["annotations"] =
            json!({ "example.com/weight": "9", "example.com/x": "9", "example.com/old": "7", "other": "1" });
        let sent = yielded(manifest.clone(), &object, &paths(&manifest).unwrap());
        let yields = "metadata.annotations[example.com/*]";
        assert_eq!(
            sent["metadata"]["annotations"],
            json!({ YIELD: yields, "other": "1", "example.com/old": "7" })
        );
    }

    #[test]
    fn the_paths_are_also_removed_from_a_map_that_names_items_as_managed_fields_do() {
        let body = manifest(IMAGE, containers(json!([{ "name": "app" }])));
        let mut tree =
            json!({ "spec": containers(json!({ r#"k:{"name":"app"}"#: { "image": "b", "tty": true } })) });
        take_path(&mut tree, &paths(&body).unwrap()[0]);
        assert_eq!(tree, json!({ "spec": containers(json!({ r#"k:{"name":"app"}"#: { "tty": true } })) }));
        let mut only = json!({ "spec": containers(json!({ r#"k:{"name":"app"}"#: { "image": "b" } })) });
        take_path(&mut only, &paths(&body).unwrap()[0]);
        assert_eq!(only, json!({}));
    }
}

//! Decides which yielded fields (`brokkr.io/yield`) are part of an apply to an existing object.
//!
//! Omitting them is not enough: the server removes a field that its only owner no longer sends, and
//! `spec.replicas` would fall back to 1. So the current owner of a field decides. If another manager owns it,
//! it is omitted. If only we own it, it is sent with its live value. In both cases its value stays, whatever
//! the manifest says.
//!
//! Another manager may take the field over between the read and the apply. So the apply contains the
//! resourceVersion of the read.

use brokkr_manifest::yields::FieldPath;
use serde_json::{Map, Value, json};

use crate::ownership::FIELD_MANAGER;

/// Returns the body to apply to the `live` object, with its resourceVersion, so that the server refuses the
/// apply if the object has changed.
#[must_use]
pub fn yielded(mut body: Value, live: &Value, paths: &[FieldPath]) -> Value {
    for path in paths {
        take(&mut body, path.names());
        if let Some(value) = keep(live, path.names()) {
            put(&mut body, path.names(), value);
        }
    }
    if let Some(version) = live.pointer("/metadata/resourceVersion") {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    body
}

/// Returns the part of the live value that must be sent so that nothing changes. Maps are split, because each
/// of their fields may have another owner.
fn keep(live: &Value, names: &[String]) -> Option<Value> {
    let value = names.iter().try_fold(live, |value, name| value.get(name))?;
    if let (Value::Object(fields), false) = (value, is_whole(live, names)) {
        let kept = fields.keys().filter_map(|name| {
            let deeper: Vec<String> = names.iter().chain([name]).cloned().collect();
            Some((name.clone(), keep(live, &deeper)?))
        });
        let kept: Map<String, Value> = kept.collect();
        return (!kept.is_empty()).then_some(Value::Object(kept));
    }
    let (ours, theirs) = owners(live, names);
    (ours && !theirs).then(|| value.clone())
}

/// Returns whether this map is owned as a whole.
fn is_whole(live: &Value, names: &[String]) -> bool {
    entries(live).any(|entry| find(&entry["fieldsV1"], names).is_some_and(is_leaf))
}

/// Returns whether the field is ours, and whether it is another manager's.
fn owners(live: &Value, names: &[String]) -> (bool, bool) {
    let (mut ours, mut theirs) = (false, false);
    for entry in entries(live).filter(|entry| owns(&entry["fieldsV1"], names)) {
        if entry["manager"] == FIELD_MANAGER { ours = true } else { theirs = true }
    }
    (ours, theirs)
}

pub(crate) fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

/// Returns whether a tree of fields contains the path, or owns a field above it as a whole.
fn owns(fields: &Value, names: &[String]) -> bool {
    (1..=names.len()).any(|depth| {
        find(fields, &names[..depth]).is_some_and(|found| depth == names.len() || is_leaf(found))
    })
}

fn find<'a>(fields: &'a Value, names: &[String]) -> Option<&'a Value> {
    names.iter().try_fold(fields, |fields, name| fields.get(format!("f:{name}")))
}

pub(crate) fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_some_and(Map::is_empty)
}

/// Removes the field, and the enclosing maps that become empty.
pub(crate) fn take(value: &mut Value, names: &[String]) {
    let Some((last, above)) = names.split_last() else { return };
    let parent = above.iter().try_fold(&mut *value, |parent, name| parent.get_mut(name));
    let Some(fields) = parent.and_then(Value::as_object_mut) else { return };
    if fields.remove(last).is_some() && fields.is_empty() {
        take(value, above);
    }
}

fn put(value: &mut Value, names: &[String], field: Value) {
    let Some((last, above)) = names.split_last() else { return };
    let mut parent = value;
    for name in above {
        let Some(fields) = parent.as_object_mut() else { return };
        parent = fields.entry(name).or_insert_with(|| json!({}));
    }
    if let Some(fields) = parent.as_object_mut() {
        fields.insert(last.clone(), field);
    }
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
}

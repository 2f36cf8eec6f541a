//! Edits of a Deployment and a Secret, with the `managedFields` that the API server writes for them.

use super::*;
use crate::ownership::AGENT_LABEL;

const BEGIN: &str = "2026-11-18T10:00:00Z";
const BEFORE: &str = "2026-11-18T09:00:00Z";
const AFTER: &str = "2026-11-18T10:05:00Z";

fn manifest() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "paused": false,
            "template": {"spec": {"containers": [{
                "name": "web", "image": "web:1",
                "ports": [{"containerPort": 80}],
                "args": ["--fast"],
            }]}},
        },
    })
}

/// Returns the fields of the manifest, as the API server lists them.
fn fields() -> Value {
    json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:paused": {},
            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
                ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }}}},
        },
    })
}

fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "time": time, "fieldsV1": fields})
}

/// Returns the patch after these fields were taken from us and those of another manager were added.
fn patch(taken: &[&str], change: impl FnOnce(&mut Value), theirs: Value, time: &str) -> Value {
    let mut ours = fields();
    for path in taken {
        let (parent, name) = path.rsplit_once('/').expect("a path");
        let parent = ours.pointer_mut(parent).and_then(Value::as_object_mut).expect("a parent");
        assert!(parent.remove(name).is_some(), "{path}");
    }
    let mut live = manifest();
    // A default of the API server.
    live["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = json!("TCP");
    change(&mut live);
    live["metadata"]["managedFields"] =
        json!([entry(FIELD_MANAGER, "Apply", BEFORE, ours), entry("kubectl-edit", "Update", time, theirs)]);
    edits(&manifest(), &live, BEGIN.parse().unwrap()).expect("a patch")
}

const WEB: &str = "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"web\"}";

#[test]
fn f2_a_changed_image_of_one_container_and_other_replicas_are_the_patch() {
    let theirs = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"web\"}": {"f:image": {}}}}}}});
    let patch = patch(
        &["/f:spec/f:replicas", &format!("{WEB}/f:image")],
        |live| {
            live["spec"]["replicas"] = json!(5);
            live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:debug");
        },
        theirs,
        AFTER,
    );
    let expected = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [
        {"name": "web", "image": "web:debug"}]}}}});
    assert_eq!(patch, expected);
}

#[test]
fn f2_removed_fields_are_null_and_additions_count_only_if_they_are_new() {
    let theirs = json!({
        "f:metadata": {"f:annotations": {"f:note": {}}},
        "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:env": {
            ".": {}, "k:{\"name\":\"DEBUG\"}": {".": {}, "f:name": {}, "f:value": {}}}}}}}},
    });
    let change = |live: &mut Value| {
        live["spec"].as_object_mut().unwrap().remove("paused");
        live["metadata"]["annotations"] = json!({"note": "mine", "other": "older"});
        live["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "DEBUG", "value": "1"}]);
    };
    let expected = json!({
        "metadata": {"annotations": {"note": "mine"}},
        "spec": {"paused": null, "template": {"spec": {"containers": [
            {"name": "web", "env": [{"name": "DEBUG", "value": "1"}]}]}}},
    });
    assert_eq!(patch(&["/f:spec/f:paused"], change, theirs.clone(), AFTER), expected);
    assert_eq!(
        patch(&["/f:spec/f:paused"], change, theirs, BEFORE),
        json!({"spec": {"paused": null}}),
        "they were added before the suspension"
    );
}

#[test]
fn f2_containers_that_are_gone_or_new_are_named() {
    let theirs = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"shell\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}});
    let patch = patch(
        &["/f:spec/f:template"],
        |live| live["spec"]["template"]["spec"]["containers"] = json!([{"name": "shell", "image": "sh:1"}]),
        theirs,
        AFTER,
    );
    // None of the items is ours any more: the list as it is now.
    let expected =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "shell", "image": "sh:1"}]}}}});
    assert_eq!(patch, expected);
}

#[test]
fn f2_without_an_edit_the_patch_is_empty_whatever_the_server_has_added() {
    let change = |live: &mut Value| live["status"] = json!({"replicas": 2});
    assert_eq!(patch(&[], change, json!({"f:status": {"f:replicas": {}}}), AFTER), json!({}));
}

#[test]
fn f2_fields_that_the_manifest_leaves_to_others_are_no_edits() {
    let mut manifest = manifest();
    manifest["metadata"]["annotations"] = json!({"brokkr.io/yield": "spec.replicas"});
    let mut live = manifest.clone();
    live["spec"]["replicas"] = json!(9);
    let mut ours = fields();
    ours["f:spec"].as_object_mut().unwrap().remove("f:replicas");
    ours["f:metadata"]["f:annotations"] = json!({"f:brokkr.io/yield": {}});
    let theirs = json!({"f:spec": {"f:replicas": {}}});
    live["metadata"]["managedFields"] =
        json!([entry(FIELD_MANAGER, "Apply", BEFORE, ours), entry("hpa", "Update", AFTER, theirs)]);
    assert_eq!(edits(&manifest, &live, BEGIN.parse().unwrap()), Some(json!({})));
}

#[test]
fn values_of_a_secret_are_not_in_the_patch_and_a_large_one_is_left_out() {
    let manifest = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
        "data": {"password": "b2xk", "user": "YQ=="}});
    let mut live = manifest.clone();
    live["data"] = json!({"password": "bmV3", "token": "c2VjcmV0"});
    let ours = json!({"f:type": {}});
    let annotations = json!({"f:note": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}});
    let theirs =
        json!({"f:data": {"f:password": {}, "f:token": {}}, "f:metadata": {"f:annotations": annotations}});
    live["metadata"]["annotations"] = json!({"note": "secret", "kubectl.kubernetes.io/last-applied-configuration": "{\"data\": \"secret\"}"});
    live["metadata"]["managedFields"] =
        json!([entry(FIELD_MANAGER, "Apply", BEFORE, ours), entry("kubectl", "Update", AFTER, theirs)]);
    let patch = edits(&manifest, &live, BEGIN.parse().unwrap()).unwrap();
    let expected = json!({
        "data": {"password": HIDDEN, "token": HIDDEN, "user": null},
        "metadata": {"annotations": {"note": HIDDEN}},
    });
    assert_eq!(patch, expected);

    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": "1"}});
    let mut live = manifest.clone();
    live["data"]["a"] = json!("x".repeat(LONGEST_PATCH));
    assert_eq!(edits(&manifest, &live, BEGIN.parse().unwrap()), None);
}

#[test]
fn f2_a_key_that_was_added_to_a_map_that_is_owned_as_a_whole_is_in_the_patch() {
    let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "clusterIP": "None"}});
    let mut live = manifest.clone();
    live["spec"]["selector"]["debug"] = json!("1");
    let (ours, theirs) = (json!({"f:spec": {"f:clusterIP": {}}}), json!({"f:spec": {"f:selector": {}}}));
    live["metadata"]["managedFields"] =
        json!([entry(FIELD_MANAGER, "Apply", BEFORE, ours), entry("kubectl", "Update", AFTER, theirs)]);
    let patch = edits(&manifest, &live, BEGIN.parse().unwrap());
    assert_eq!(patch, Some(json!({"spec": {"selector": {"debug": "1"}}})));
}

#[test]
fn f2_an_object_that_has_lost_only_the_label_of_the_agent_is_changed() {
    let agent = AgentId::generate();
    let mut live = with_label(manifest(), agent);
    let mut ours = fields();
    ours["f:metadata"]["f:labels"]["f:brokkr.io/agent"] = json!({});
    live["metadata"]["managedFields"] = json!([entry(FIELD_MANAGER, "Apply", BEFORE, ours)]);
    assert_eq!(changes(&manifest(), &live, agent), json!({}));
    live["metadata"]["managedFields"] = json!([entry(FIELD_MANAGER, "Apply", BEFORE, fields())]);
    live["metadata"]["labels"] = json!({"app": "web"});
    let expected = json!({"metadata": {"labels": {AGENT_LABEL: null}}});
    assert_eq!(changes(&manifest(), &live, agent), expected);
}

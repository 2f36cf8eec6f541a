//! Statuses as the kubelet and controllers write them, and the resulting causes.

use serde_json::{Value, json};

use super::*;
use crate::resource::Served;

fn workload() -> Key {
    "apps/Deployment/shop/web".parse().unwrap()
}

fn kind(group: &str, kind: &str) -> Kind {
    Kind::from(Served {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: "x".into(),
        namespaced: true,
    })
}

/// A Pod of one container `app`, in this state.
fn pod(name: &str, phase: &str, container: Value) -> Value {
    let mut status = json!({"name": "app", "image": "registry.example/shop/web:7", "ready": false});
    status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "app",
            "resources": {"limits": {"memory": "64Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        }]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "containerStatuses": [status],
        },
    })
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"state": {"waiting": {"reason": reason, "message": message}}})
}

fn unscheduled(name: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
        ]},
    })
}

fn event(about: &str, reason: &str, message: &str, at: &str) -> Value {
    json!({
        "involvedObject": {"name": about}, "reason": reason, "message": message, "lastTimestamp": at,
    })
}

#[track_caller]
fn finds(pods: &[Value], reason: &str, message: &str) {
    let found = cause(&workload(), &Evidence { pods, ..Evidence::default() });
    let found = found.map(|cause| (cause.reason.code().to_owned(), cause.message.to_string()));
    assert_eq!(found, Some((reason.to_owned(), message.to_owned())));
}

#[test]
fn an_image_that_cannot_be_pulled_is_named() {
    let words = "rpc error: code = NotFound desc = no such manifest";
    finds(
        &[pod("web-1", "Pending", waiting("ErrImagePull", words))],
        "ErrImagePull",
        &format!("pod web-1, container app: image registry.example/shop/web:7 cannot be pulled: {words}"),
    );
    finds(
        &[pod("web-1", "Pending", waiting("ImagePullBackOff", ""))],
        "ImagePullBackOff",
        "pod web-1, container app: image registry.example/shop/web:7 cannot be pulled",
    );
    // The init container is reported, although the other container also waits.
    let mut first = pod("web-1", "Pending", waiting("PodInitializing", ""));
    first["status"]["initContainerStatuses"] = json!([
        {"name": "migrate", "image": "m:1", "state": {"waiting": {"reason": "InvalidImageName", "message": "bad"}}},
    ]);
    finds(&[first], "InvalidImageName", "pod web-1, container migrate: image m:1 cannot be pulled: bad");
}

#[test]
fn a_missing_secret_is_named() {
    finds(
        &[pod("web-1", "Pending", waiting("CreateContainerConfigError", "secret \"db\" not found"))],
        "CreateContainerConfigError",
        "pod web-1, container app: cannot be started: secret \"db\" not found",
    );
}

#[test]
fn a_crash_names_its_exit_code_and_last_line() {
    let crash = |code: i64, reason: &str, message: &str| {
        json!({
            "restartCount": 5,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}},
            "lastState": {"terminated": {"exitCode": code, "reason": reason, "message": message}},
        })
    };
    finds(
        &[pod("web-1", "Running", crash(2, "Error", "starting\nno DATABASE_URL\n"))],
        "CrashLoopBackOff",
        "pod web-1, container app: exits with code 2, restarted 5 times: no DATABASE_URL",
    );
    finds(
        &[pod("web-1", "Running", crash(137, "OOMKilled", ""))],
        "OOMKilled",
        "pod web-1, container app: killed, out of memory (its limit is 64Mi), restarted 5 times",
    );
    // A server that exits at once with code 0 also counts as crashed.
    finds(
        &[pod("web-1", "Running", crash(0, "Completed", ""))],
        "CrashLoopBackOff",
        "pod web-1, container app: exits with code 0, restarted 5 times",
    );
    let first = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
    finds(&[pod("web-1", "Failed", first)], "Error", "pod web-1, container app: exits with code 1");
}

#[test]
fn an_init_container_that_does_not_end_is_named() {
    let mut waiting_pod = pod("web-1", "Pending", waiting("PodInitializing", ""));
    waiting_pod["spec"]["initContainers"] =
        json!([{"name": "proxy", "restartPolicy": "Always"}, {"name": "migrate"}]);
    let running = |name: &str| json!({"name": name, "state": {"running": {}}, "ready": true});
    waiting_pod["status"]["initContainerStatuses"] = json!([running("proxy")]);
    assert_eq!(
        cause(&workload(), &Evidence { pods: &[waiting_pod.clone()], ..Evidence::default() }),
        None,
        "a sidecar goes on running"
    );
    waiting_pod["status"]["initContainerStatuses"] = json!([running("proxy"), running("migrate")]);
    let message = "pod web-1: its init container migrate is still running";
    finds(&[waiting_pod], "ContainersNotInitialized", message);
}

#[test]
fn the_scheduler_is_quoted() {
    let words = "0/3 nodes are available: 3 Insufficient cpu.";
    finds(&[unscheduled("web-1", words)], "Unschedulable", &format!("pod web-1: {words}"));
    let words = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    finds(&[unscheduled("web-1", words)], "VolumeClaimPending", &format!("pod web-1: {words}"));
}

#[test]
fn a_running_container_that_is_not_ready_fails_its_probe() {
    let running = json!({"state": {"running": {}}, "started": true});
    let pods = [pod("web-1", "Running", running)];
    let plain = "pod web-1, container app: runs, but its readiness probe does not succeed";
    finds(&pods, "ReadinessProbeFailing", plain);
    let words = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    let events = [
        event("web-1", "Unhealthy", "Readiness probe failed: connection refused", "2026-01-01T00:00:01Z"),
        event("web-1", "Unhealthy", words, "2026-01-01T00:00:09Z"),
        event("web-2", "Unhealthy", "another pod's", "2026-01-01T00:00:10Z"),
    ];
    let found = cause(&workload(), &Evidence { pods: &pods, events: &events, ..Evidence::default() });
    assert_eq!(found.unwrap().message.to_string(), format!("{plain}: {words}"));
    let mut starting = pods[0].clone();
    starting["spec"]["containers"][0]["startupProbe"] = json!({});
    starting["status"]["containerStatuses"][0]["started"] = json!(false);
    let plain = "pod web-1, container app: runs, but its startup probe does not succeed";
    finds(&[starting], "StartupProbeFailing", plain);
}

#[test]
fn pods_that_cannot_be_created_are_explained_by_the_replica_set_or_an_event() {
    let words = "pods \"web-x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2";
    let sets = [
        json!({"status": {"replicas": 2}}),
        json!({"status": {"conditions": [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words},
        ]}}),
    ];
    let found = cause(&workload(), &Evidence { replica_sets: &sets, ..Evidence::default() }).unwrap();
    assert_eq!(found.reason, Reason::QuotaExceeded { quota: None });
    assert_eq!(found.message.to_string(), format!("pods cannot be created: {words}"));

    let denied = "admission webhook \"policy.example.com\" denied the request: no latest tags";
    let events = [event("db", "FailedCreate", denied, "2026-01-01T00:00:01Z")];
    let stateful: Key = "apps/StatefulSet/shop/db".parse().unwrap();
    let found = cause(&stateful, &Evidence { events: &events, ..Evidence::default() }).unwrap();
    assert_eq!(
        (found.reason.code(), found.message.to_string()),
        ("FailedCreate", format!("pods cannot be created: {denied}"))
    );
}

#[test]
fn a_volume_that_cannot_be_mounted_is_explained_by_an_event() {
    let pods = [pod("web-1", "Pending", waiting("ContainerCreating", ""))];
    let words = "MountVolume.SetUp failed for volume \"tls\" : secret \"web-tls\" not found";
    let events = [event("web-1", "FailedMount", words, "2026-01-01T00:00:01Z")];
    let found =
        cause(&workload(), &Evidence { pods: &pods, events: &events, ..Evidence::default() }).unwrap();
    assert_eq!(
        (found.reason.code(), found.message.to_string()),
        ("FailedMount", format!("pod web-1: {words}"))
    );
}

#[test]
fn the_most_specific_cause_comes_first_and_ready_or_deleted_pods_have_none() {
    let pulling = pod("web-2", "Pending", waiting("ImagePullBackOff", ""));
    let stuck = unscheduled("web-1", "no node fits");
    for pods in [[stuck.clone(), pulling.clone()], [pulling.clone(), stuck]] {
        let found = cause(&workload(), &Evidence { pods: &pods, ..Evidence::default() }).unwrap();
        assert_eq!(found.reason, Reason::ImagePullBackOff);
    }
    let mut deleted = pulling;
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    // It crashed once, long ago, and is ready now.
    let mut ready = pod(
        "web-3",
        "Running",
        json!({
            "ready": true, "restartCount": 1, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1}},
        }),
    );
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let young = pod("web-4", "Pending", waiting("ContainerCreating", ""));
    let pods = [deleted, ready, young];
    assert_eq!(cause(&workload(), &Evidence { pods: &pods, ..Evidence::default() }), None);
}

#[test]
fn pods_are_selected_as_the_workload_selects_them() {
    let body = |selector: Value| json!({"spec": {"selector": selector}});
    let select = |group: &str, name: &str, selector: Value| {
        selector::pods_of(&kind(group, name), &workload(), &body(selector))
    };
    let labels = || json!({"matchLabels": {"app": "web", "example.com/tier": "front"}});
    let encoded = "labelSelector=app%3Dweb%2Cexample.com%2Ftier%3Dfront";
    assert_eq!(select("apps", "Deployment", labels()).as_deref(), Some(encoded));
    let expressions = json!({"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"},
    ]});
    let encoded = "labelSelector=app%20in%20%28a%2Cb%29%2C%21old";
    assert_eq!(select("apps", "StatefulSet", expressions).as_deref(), Some(encoded));
    // It would select everything.
    assert_eq!(select("apps", "Deployment", json!({})), None);
    assert_eq!(select("batch", "Job", json!(null)).as_deref(), Some("labelSelector=job-name%3Dweb"));
    assert_eq!(select("", "Pod", json!(null)).as_deref(), Some("fieldSelector=metadata.name%3Dweb"));
    assert_eq!(select("", "ConfigMap", json!(null)), None);
}

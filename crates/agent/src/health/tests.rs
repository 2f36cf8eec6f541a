//! The rules as a table: what the API server says, and what Brokkr then says.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::HealthState::{Failed, Progressing, Ready, Terminating, Unknown};
use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// An object of generation 2, created `age` seconds ago.
fn judge_aged(age: i64, kind: &str, spec: Value, status: Value) -> Health {
    let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
    let created = NOW.checked_sub(SignedDuration::from_secs(age)).ok();
    let object = ObjectView {
        group,
        kind,
        generation: Some(2),
        deletion: false,
        created,
        spec: &spec,
        status: &status,
    };
    health(&object, NOW)
}

/// Checks state, reason and message of old objects.
#[track_caller]
fn expect(kind: &str, table: &[(HealthState, &str, &str, Value, Value)]) {
    for (state, reason, message, spec, status) in table {
        let found = judge_aged(3600, kind, spec.clone(), status.clone());
        assert_eq!(found, Health::new(*state, reason, message), "{kind} {spec} {status}");
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "so it is" })
}

fn with(mut status: Value, fields: Value) -> Value {
    status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    status
}

#[test]
fn a_deployment_is_ready_when_every_replica_is_new_and_ready() {
    let spec = || json!({ "replicas": 3 });
    let done = json!({
        "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [condition("Progressing", "True", "NewReplicaSetAvailable"), condition("Available", "True", "Min")],
    });
    let status = |fields| with(done.clone(), fields);
    let progress = |reason| json!({ "conditions": [condition("Progressing", "True", reason)] });
    let unseen = "its controller has not seen the newest change yet";
    expect(
        "apps/Deployment",
        &[
            (Ready, "Ready", "3/3 replicas ready", spec(), done.clone()),
            (
                Ready,
                "Ready",
                "0/0 replicas ready",
                json!({ "replicas": 0 }),
                json!({ "observedGeneration": 2 }),
            ),
            (Progressing, "GenerationNotObserved", unseen, spec(), json!(null)),
            (
                Progressing,
                "GenerationNotObserved",
                unseen,
                spec(),
                status(json!({ "observedGeneration": 1 })),
            ),
            (Progressing, "NotReady", "2/3 replicas ready", spec(), status(json!({ "readyReplicas": 2 }))),
            (
                Progressing,
                "NotAvailable",
                "1/3 replicas available",
                spec(),
                status(json!({ "availableReplicas": 1 })),
            ),
            (
                Progressing,
                "RollingOut",
                "1/3 replicas updated",
                spec(),
                status(json!({ "updatedReplicas": 1 })),
            ),
            (
                Progressing,
                "RollingOut",
                "1 old replica still to stop",
                spec(),
                status(json!({ "replicas": 4 })),
            ),
            (
                Progressing,
                "NotReady",
                "0/1 replicas ready",
                json!({}),
                json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1 }),
            ),
            (Progressing, "ReplicaSetUpdated", "so it is", spec(), status(progress("ReplicaSetUpdated"))),
            (
                Ready,
                "Ready",
                "3/3 replicas ready",
                json!({ "replicas": 3, "progressDeadlineSeconds": i32::MAX }),
                status(progress("ReplicaSetUpdated")),
            ),
            (
                Ready,
                "Ready",
                "3/3 replicas ready",
                json!({ "replicas": 3, "paused": true }),
                status(progress("DeploymentPaused")),
            ),
            (
                Progressing,
                "Paused",
                "the rollout is paused with 1/3 replicas updated",
                json!({ "replicas": 3, "paused": true }),
                status(json!({ "updatedReplicas": 1 })),
            ),
            (
                Failed,
                "ProgressDeadlineExceeded",
                "so it is",
                spec(),
                status(progress("ProgressDeadlineExceeded")),
            ),
            (
                Progressing,
                "FailedCreate",
                "so it is",
                spec(),
                status(json!({
                    "replicas": 1, "updatedReplicas": 1, "conditions": [condition("ReplicaFailure", "True", "FailedCreate")],
                })),
            ),
        ],
    );
}

#[test]
fn a_stateful_set_is_ready_at_its_newest_revision_or_partition() {
    let spec = || json!({ "replicas": 3 });
    let partition = |number: i64| json!({ "replicas": 3, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": number } } });
    let on_delete = || json!({ "replicas": 3, "updateStrategy": { "type": "OnDelete" } });
    let done = json!({
        "observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "b", "updateRevision": "b",
    });
    let status = |fields| with(done.clone(), fields);
    let rolling = json!({ "currentRevision": "a", "currentReplicas": 2, "updatedReplicas": 1 });
    expect(
        "apps/StatefulSet",
        &[
            (Ready, "Ready", "3/3 replicas ready", spec(), done.clone()),
            (Progressing, "Creating", "1/3 replicas created", spec(), status(json!({ "replicas": 1 }))),
            (Progressing, "NotReady", "1/3 replicas ready", spec(), status(json!({ "readyReplicas": 1 }))),
            (
                Progressing,
                "NotAvailable",
                "2/3 replicas available",
                spec(),
                status(json!({ "availableReplicas": 2 })),
            ),
            (
                Progressing,
                "RollingOut",
                "2 old replicas still to stop",
                spec(),
                status(json!({ "replicas": 5, "readyReplicas": 5 })),
            ),
            (Progressing, "RollingOut", "1/3 replicas updated", spec(), status(rolling.clone())),
            (
                Ready,
                "PartitionUpdated",
                "3/3 replicas ready, 1 updated by partition",
                partition(2),
                status(rolling.clone()),
            ),
            (
                Progressing,
                "RollingOut",
                "1/2 replicas of the partition updated",
                partition(1),
                status(rolling.clone()),
            ),
            (
                Ready,
                "PartitionUpdated",
                "3/3 replicas ready, 1 updated by partition",
                partition(9),
                status(rolling.clone()),
            ),
            (Ready, "Ready", "3/3 replicas ready", on_delete(), status(rolling)),
            (
                Progressing,
                "NotReady",
                "0/3 replicas ready",
                on_delete(),
                status(json!({ "readyReplicas": 0 })),
            ),
        ],
    );
}

#[test]
fn a_daemon_set_is_ready_on_every_node_that_wants_it() {
    let done = json!({
        "observedGeneration": 2, "desiredNumberScheduled": 4, "currentNumberScheduled": 4, "updatedNumberScheduled": 4,
        "numberReady": 4, "numberAvailable": 4,
    });
    let status = |fields| with(done.clone(), fields);
    let none = || json!(null);
    expect(
        "apps/DaemonSet",
        &[
            (Ready, "Ready", "4/4 pods ready", none(), done.clone()),
            (Ready, "Ready", "0/0 pods ready", none(), json!({ "observedGeneration": 2 })),
            (
                Progressing,
                "Scheduling",
                "3/4 pods scheduled",
                none(),
                status(json!({ "currentNumberScheduled": 3 })),
            ),
            (
                Progressing,
                "RollingOut",
                "1/4 pods updated",
                none(),
                status(json!({ "updatedNumberScheduled": 1 })),
            ),
            (
                Ready,
                "Ready",
                "4/4 pods ready",
                json!({ "updateStrategy": { "type": "OnDelete" } }),
                status(json!({ "updatedNumberScheduled": 1 })),
            ),
            (Progressing, "NotReady", "2/4 pods ready", none(), status(json!({ "numberReady": 2 }))),
            (
                Progressing,
                "NotAvailable",
                "2/4 pods available",
                none(),
                status(json!({ "numberAvailable": 2 })),
            ),
        ],
    );
}

#[test]
fn a_replica_set_is_ready_with_all_its_replicas_and_tells_why_it_is_not() {
    let done = json!({
        "observedGeneration": 2, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
    });
    let status = |fields| with(done.clone(), fields);
    let spec = || json!({ "replicas": 2 });
    expect(
        "apps/ReplicaSet",
        &[
            (Ready, "Ready", "2/2 replicas ready", spec(), done.clone()),
            (
                Progressing,
                "Creating",
                "1/2 replicas created",
                spec(),
                status(json!({ "replicas": 1, "fullyLabeledReplicas": 1 })),
            ),
            (
                Progressing,
                "RollingOut",
                "1 old replica still to stop",
                spec(),
                status(json!({ "replicas": 3 })),
            ),
            (
                Progressing,
                "FailedCreate",
                "so it is",
                spec(),
                status(json!({
                    "replicas": 0, "conditions": [condition("ReplicaFailure", "True", "FailedCreate")],
                })),
            ),
        ],
    );
}

#[test]
fn a_job_is_ready_when_it_is_complete_and_not_when_it_has_started() {
    let conditions =
        |kind, reason| json!({ "startTime": "x", "conditions": [condition(kind, "True", reason)] });
    expect(
        "batch/Job",
        &[
            (Progressing, "NotStarted", "not started yet", json!({}), json!({})),
            (
                Progressing,
                "Running",
                "0/1 completed, 1 active",
                json!({}),
                json!({ "startTime": "x", "active": 1 }),
            ),
            (
                Progressing,
                "Running",
                "1/3 completed, 1 active, 2 failed",
                json!({ "completions": 3 }),
                json!({ "startTime": "x", "active": 1, "succeeded": 1, "failed": 2 }),
            ),
            (Ready, "Complete", "completed", json!({}), conditions("Complete", "")),
            (
                Failed,
                "BackoffLimitExceeded",
                "so it is",
                json!({}),
                conditions("Failed", "BackoffLimitExceeded"),
            ),
            (
                Ready,
                "Suspended",
                "suspended, as its manifest asks",
                json!({ "suspend": true }),
                conditions("Suspended", ""),
            ),
            (
                Failed,
                "DeadlineExceeded",
                "so it is",
                json!({ "suspend": true }),
                conditions("Failed", "DeadlineExceeded"),
            ),
        ],
    );
    expect("batch/CronJob", &[(Ready, "Applied", "applied", json!({}), json!({}))]);
}

#[test]
fn a_failed_pod_has_failed() {
    let none = || json!(null);
    let container = |reason: &str| json!([{ "name": "app", "state": { "waiting": { "reason": reason } } }]);
    let ready = |status| json!({ "phase": "Running", "conditions": [condition("Ready", status, "")] });
    expect(
        "Pod",
        &[
            (Progressing, "Pending", "not running yet", none(), none()),
            (Ready, "Ready", "running and ready", none(), ready("True")),
            (Progressing, "NotReady", "running, not ready", none(), ready("False")),
            (Ready, "Succeeded", "succeeded", none(), json!({ "phase": "Succeeded" })),
            (Failed, "Failed", "the pod has failed", none(), json!({ "phase": "Failed" })),
            (
                Failed,
                "Evicted",
                "low on memory",
                none(),
                json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
            ),
            (Unknown, "NodeUnreachable", "its node does not answer", none(), json!({ "phase": "Unknown" })),
            (
                Failed,
                "CrashLoopBackOff",
                "container app keeps crashing",
                none(),
                json!({ "phase": "Running", "containerStatuses": container("CrashLoopBackOff") }),
            ),
            (
                Failed,
                "CrashLoopBackOff",
                "container app keeps crashing",
                none(),
                json!({ "phase": "Pending", "initContainerStatuses": container("CrashLoopBackOff"), "containerStatuses": container("PodInitializing") }),
            ),
            (
                Progressing,
                "ImagePullBackOff",
                "container app waits: ImagePullBackOff",
                none(),
                json!({ "phase": "Pending", "containerStatuses": container("ImagePullBackOff") }),
            ),
        ],
    );
}

#[test]
fn a_pod_without_a_node_has_a_moment_before_it_has_failed() {
    let status =
        json!({ "phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable")] });
    assert_eq!(judge_aged(14, "Pod", json!({}), status.clone()).state, Progressing);
    assert_eq!(judge_aged(15, "Pod", json!({}), status).state, Failed);
}

#[test]
fn a_service_works_without_an_address_from_the_cloud() {
    let balanced = || json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1" });
    let address = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    expect(
        "Service",
        &[
            (Ready, "Applied", "applied", json!({ "type": "ClusterIP" }), json!({})),
            (Ready, "Applied", "applied", json!({ "type": "ExternalName" }), json!({})),
            (
                Progressing,
                "NoClusterAddress",
                "no cluster address yet",
                json!({ "type": "LoadBalancer" }),
                json!({}),
            ),
            (
                Ready,
                "WaitingForAddress",
                "works in the cluster; the load balancer has no address yet",
                balanced(),
                json!({ "loadBalancer": {} }),
            ),
            (Ready, "Ready", "the load balancer has an address", balanced(), address),
        ],
    );
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_is_fine() {
    let none = || json!(null);
    let waiting = "not bound yet; may be waiting for its first consumer";
    expect(
        "PersistentVolumeClaim",
        &[
            (Ready, "Bound", "bound", none(), json!({ "phase": "Bound" })),
            (Ready, "WaitingForConsumer", waiting, none(), json!({ "phase": "Pending" })),
            (Failed, "Lost", "its volume is gone", none(), json!({ "phase": "Lost" })),
        ],
    );
}

#[test]
fn namespaces_and_definitions_are_ready_when_others_can_use_them() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "conditions": conditions });
    expect(
        "Namespace",
        &[
            (Ready, "Active", "active", none(), json!({ "phase": "Active" })),
            (Terminating, "Terminating", "being deleted", none(), json!({ "phase": "Terminating" })),
            (Progressing, "NotActive", "not active yet", none(), none()),
        ],
    );
    expect(
        "apiextensions.k8s.io/CustomResourceDefinition",
        &[
            (Progressing, "Installing", "not established yet", none(), none()),
            (
                Progressing,
                "Installing",
                "not established yet",
                none(),
                conditions(&[condition("Established", "False", "Installing")]),
            ),
            (
                Ready,
                "Established",
                "established",
                none(),
                conditions(&[condition("NamesAccepted", "True", ""), condition("Established", "True", "")]),
            ),
            (
                Failed,
                "PluralConflict",
                "so it is",
                none(),
                conditions(&[condition("NamesAccepted", "False", "PluralConflict")]),
            ),
            (
                Failed,
                "NotAccepted",
                "so it is",
                none(),
                conditions(&[condition("Established", "False", "NotAccepted")]),
            ),
        ],
    );
    expect(
        "apiregistration.k8s.io/APIService",
        &[
            (Progressing, "NotAvailable", "not available yet", none(), none()),
            (
                Progressing,
                "MissingEndpoints",
                "so it is",
                none(),
                conditions(&[condition("Available", "False", "MissingEndpoints")]),
            ),
            (Ready, "Available", "available", none(), conditions(&[condition("Available", "True", "")])),
        ],
    );
}

#[test]
fn a_custom_resource_is_what_its_conditions_say() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "conditions": conditions });
    let unseen = "its controller has not seen the newest change yet";
    let stale = |kind| with(condition(kind, "True", "Old"), json!({ "observedGeneration": 1 }));
    expect(
        "example.com/Widget",
        &[
            (Ready, "Succeeded", "so it is", none(), conditions(&[condition("Ready", "True", "Succeeded")])),
            (
                Progressing,
                "Waiting",
                "so it is",
                none(),
                conditions(&[condition("Ready", "False", "Waiting")]),
            ),
            (Progressing, "NotReady", "so it is", none(), conditions(&[condition("Ready", "Unknown", "")])),
            (
                Failed,
                "Broken",
                "so it is",
                none(),
                conditions(&[condition("Ready", "False", "x"), condition("Stalled", "True", "Broken")]),
            ),
            (
                Progressing,
                "Busy",
                "so it is",
                none(),
                conditions(&[condition("Ready", "True", "x"), condition("Reconciling", "True", "Busy")]),
            ),
            (
                Ready,
                "Done",
                "so it is",
                none(),
                conditions(&[condition("Stalled", "False", "x"), condition("Ready", "True", "Done")]),
            ),
            (
                Progressing,
                "GenerationNotObserved",
                unseen,
                none(),
                json!({ "observedGeneration": 1, "conditions": [condition("Ready", "True", "x")] }),
            ),
            (Progressing, "GenerationNotObserved", unseen, none(), conditions(&[stale("Ready")])),
            (
                Ready,
                "Done",
                "so it is",
                none(),
                conditions(&[stale("Stalled"), stale("Reconciling"), condition("Ready", "True", "Done")]),
            ),
            (Ready, "Applied", "applied", none(), json!({ "observedGeneration": 2 })),
            (Ready, "Applied", "applied", none(), json!({ "conditions": "nonsense" })),
        ],
    );
}

#[test]
fn a_custom_resource_without_status_has_a_grace_and_then_counts_as_ready() {
    for status in [json!(null), json!({})] {
        assert_eq!(judge_aged(9, "example.com/Widget", json!({}), status.clone()).reason, "WaitingForStatus");
        assert_eq!(judge_aged(10, "example.com/Widget", json!({}), status.clone()).state, Ready);
        // A clock that is an hour off must not hold a stack up for an hour.
        assert_eq!(judge_aged(-3600, "example.com/Widget", json!({}), status).state, Ready);
    }
    assert_eq!(
        judge_aged(0, "gateway.networking.k8s.io/HTTPRoute", json!({}), json!(null)).state,
        Progressing
    );
}

#[test]
fn everything_else_is_ready_at_once() {
    for kind in [
        "ConfigMap",
        "Secret",
        "rbac.authorization.k8s.io/Role",
        "networking.k8s.io/Ingress",
        "policy/PodDisruptionBudget",
    ] {
        assert_eq!(
            judge_aged(0, kind, json!({}), json!(null)),
            Health::ready("Applied", "applied"),
            "{kind}"
        );
    }
    let behind =
        judge_aged(3600, "policy/PodDisruptionBudget", json!({}), json!({ "observedGeneration": 1 }));
    assert_eq!(behind.state, Progressing);
}

#[test]
fn what_is_being_deleted_is_terminating_whatever_else_it_says() {
    let status = json!({ "phase": "Active" });
    let null = Value::Null;
    let object = ObjectView {
        group: "",
        kind: "Namespace",
        generation: None,
        deletion: true,
        created: None,
        spec: &null,
        status: &status,
    };
    assert_eq!(health(&object, NOW).state, Terminating);
}

#[test]
fn the_time_to_ask_again_is_known_where_time_alone_changes_the_verdict() {
    let null = Value::Null;
    let created = NOW.checked_sub(SignedDuration::from_secs(4)).unwrap();
    let mut object = ObjectView {
        group: "example.com",
        kind: "Widget",
        generation: Some(1),
        deletion: false,
        created: Some(created),
        spec: &null,
        status: &null,
    };
    let again = recheck_at(&object, NOW).unwrap();
    assert_eq!(again, created.checked_add(STATUS_GRACE).unwrap());
    assert_eq!((health(&object, NOW).state, health(&object, again).state), (Progressing, Ready));
    assert_eq!(recheck_at(&object, again), None);
    object.group = "";
    object.kind = "ConfigMap";
    assert_eq!(recheck_at(&object, NOW), None);
}

#[test]
fn long_messages_are_cut_and_states_are_lower_case_on_the_wire() {
    let cut = Health::failed("Long", "ä".repeat(10_000));
    assert_eq!(cut.message.chars().count(), 513);
    let wire = serde_json::to_value(Health::ready("Ready", "3/3 replicas ready")).unwrap();
    assert_eq!(wire, json!({ "state": "ready", "reason": "Ready", "message": "3/3 replicas ready" }));
}

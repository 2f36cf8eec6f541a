//! Deployment, StatefulSet, DaemonSet, ReplicaSet.

use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready, Suspended};
use super::*;

#[test]
fn a_deployment_is_ready_when_every_replica_is_new_and_ready() {
    let spec = || json!({ "replicas": 3 });
    let done = json!({
        "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [condition("Progressing", "True", "NewReplicaSetAvailable"), condition("Available", "True", "Min")],
    });
    let status = |fields| with(done.clone(), fields);
    let progress = |reason| json!({ "conditions": [condition("Progressing", "True", reason)] });
    let unseen = "its controller has not processed the newest change yet";
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
                "waiting for 1 old replica to stop",
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
            (Progressing, "ReplicaSetUpdated", "details", spec(), status(progress("ReplicaSetUpdated"))),
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
                Suspended,
                "Paused",
                "the rollout is paused with 1/3 replicas updated",
                json!({ "replicas": 3, "paused": true }),
                status(json!({ "updatedReplicas": 1 })),
            ),
            (
                Suspended,
                "Paused",
                "the rollout is paused with 3/3 replicas updated",
                json!({ "replicas": 3, "paused": true }),
                status(json!({ "replicas": 4 })),
            ),
            (
                Progressing,
                "NotReady",
                "1/3 replicas ready",
                json!({ "replicas": 3, "paused": true }),
                status(json!({ "readyReplicas": 1 })),
            ),
            (
                Failed,
                "ProgressDeadlineExceeded",
                "details",
                spec(),
                status(progress("ProgressDeadlineExceeded")),
            ),
            (
                Progressing,
                "FailedCreate",
                "details",
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
                "waiting for 2 old replicas to stop",
                spec(),
                status(json!({ "replicas": 5, "readyReplicas": 5 })),
            ),
            (Progressing, "RollingOut", "1/3 replicas updated", spec(), status(rolling.clone())),
            (
                Ready,
                "PartitionUpdated",
                "3/3 replicas ready, 1 updated in a partitioned rollout",
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
                "3/3 replicas ready, 1 updated in a partitioned rollout",
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
fn a_daemon_set_is_ready_when_it_is_ready_on_all_its_nodes() {
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
fn a_replica_set_is_ready_with_all_its_replicas_and_says_why_it_is_not() {
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
                "waiting for 1 old replica to stop",
                spec(),
                status(json!({ "replicas": 3 })),
            ),
            (
                Progressing,
                "FailedCreate",
                "details",
                spec(),
                status(json!({
                    "replicas": 0, "conditions": [condition("ReplicaFailure", "True", "FailedCreate")],
                })),
            ),
        ],
    );
}

#[test]
fn a_replication_controller_is_judged_like_a_replica_set() {
    let done = json!({
        "observedGeneration": 2, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
    });
    let unseen = "its controller has not processed the newest change yet";
    expect(
        "ReplicationController",
        &[
            (Ready, "Ready", "2/2 replicas ready", json!({ "replicas": 2 }), done),
            (Progressing, "GenerationNotObserved", unseen, json!({ "replicas": 2 }), json!(null)),
        ],
    );
    // A ControllerRevision is also in the group apps, but no controller writes its status.
    expect("apps/ControllerRevision", &[(Ready, "Applied", "applied", json!(null), json!(null))]);
}

//! Kinds that keep a number of Pods running: Deployment, StatefulSet, DaemonSet, ReplicaSet.

use jiff::Timestamp;
use serde_json::Value;

use super::conditions::{find, find_true};
use super::verdict::{Health, HealthState, ObjectView, count, is_set, text};

/// The value of `progressDeadlineSeconds` that means "none".
const NO_DEADLINE: i64 = i32::MAX as i64;

pub(super) fn deployment(object: &ObjectView<'_>, _: Timestamp) -> Health {
    let (spec, status) = (object.spec, object.status);
    let progress = find(object, "Progressing");
    if let Some(progress) = progress.filter(|progress| progress.reason() == "ProgressDeadlineExceeded") {
        return Health::failed(
            "ProgressDeadlineExceeded",
            progress.message_or("the progress deadline was exceeded"),
        );
    }

    let desired = desired(spec);
    let (replicas, updated) = (count(status, "replicas"), count(status, "updatedReplicas"));
    let paused = is_set(spec, "paused");
    if let Some(health) = cannot_create(object, replicas < desired || updated < desired) {
        return health;
    }
    if paused && (updated < desired || replicas > updated) {
        return paused_rollout(updated, desired);
    }
    if updated < desired {
        return incomplete(updated, desired, "updated");
    }
    if replicas > updated {
        return old_replicas(replicas - updated);
    }
    if let Some(health) = not_ready(status, desired) {
        return health;
    }
    // All counts are complete, but the controller has not finished the rollout.
    let has_deadline =
        spec.get("progressDeadlineSeconds").and_then(Value::as_i64).unwrap_or(600) != NO_DEADLINE;
    if let Some(progress) = progress
        && has_deadline
        && !paused
        && progress.reason() != "NewReplicaSetAvailable"
    {
        return progress.progressing("RollingOut", "rolling out");
    }
    if let Some(available) = find(object, "Available").filter(|available| !available.is_true()) {
        return available.progressing("Unavailable", "not available");
    }
    all_ready(desired)
}

pub(super) fn stateful_set(object: &ObjectView<'_>, _: Timestamp) -> Health {
    let (spec, status) = (object.spec, object.status);
    let desired = desired(spec);
    let replicas = count(status, "replicas");
    if replicas < desired {
        return incomplete(replicas, desired, "created");
    }
    if let Some(health) = not_ready(status, desired) {
        return health;
    }
    if replicas > desired {
        return old_replicas(replicas - desired);
    }

    let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
    let partition = strategy.get("rollingUpdate").map_or(0, |rolling| count(rolling, "partition"));
    if text(strategy, "type") == "OnDelete" {
        // Whether Pods are of the newest revision depends on when the old ones are deleted.
        return all_ready(desired);
    }
    let updated = count(status, "updatedReplicas");
    if partition > 0 {
        let share = (desired - partition).max(0);
        return if updated < share {
            incomplete(updated, share, "of the partition updated")
        } else {
            Health::ready(
                "PartitionUpdated",
                format!("{desired}/{desired} replicas ready, {updated} updated in a partitioned rollout"),
            )
        };
    }
    if text(status, "currentRevision") != text(status, "updateRevision") {
        return incomplete(updated.min(desired), desired, "updated");
    }
    all_ready(desired)
}

pub(super) fn daemon_set(object: &ObjectView<'_>, _: Timestamp) -> Health {
    let status = object.status;
    let desired = count(status, "desiredNumberScheduled");
    let on_delete =
        object.spec.get("updateStrategy").is_some_and(|strategy| text(strategy, "type") == "OnDelete");

    let mut steps = vec![("currentNumberScheduled", "Scheduling", "scheduled")];
    if !on_delete {
        steps.push(("updatedNumberScheduled", "RollingOut", "updated"));
    }
    steps.extend([("numberReady", "NotReady", "ready"), ("numberAvailable", "NotAvailable", "available")]);
    for (field, reason, word) in steps {
        let have = count(status, field);
        if have < desired {
            return Health::progressing(reason, format!("{have}/{desired} pods {word}"));
        }
    }
    Health::ready("Ready", format!("{desired}/{desired} pods ready"))
}

pub(super) fn replica_set(object: &ObjectView<'_>, _: Timestamp) -> Health {
    let status = object.status;
    let desired = desired(object.spec);
    let replicas = count(status, "replicas");
    if let Some(health) = cannot_create(object, replicas < desired) {
        return health;
    }
    let labelled = count(status, "fullyLabeledReplicas");
    if labelled < desired {
        return incomplete(labelled, desired, "created");
    }
    if let Some(health) = not_ready(status, desired) {
        return health;
    }
    if replicas > desired {
        return old_replicas(replicas - desired);
    }
    all_ready(desired)
}

fn desired(spec: &Value) -> i64 {
    spec.get("replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// Returns a verdict if Pods cannot be created, for example because of a quota: the counts do not show why.
fn cannot_create(object: &ObjectView<'_>, missing: bool) -> Option<Health> {
    let failure = find_true(object, "ReplicaFailure").filter(|_| missing)?;
    Some(failure.progressing("ReplicaFailure", "pods cannot be created"))
}

fn not_ready(status: &Value, desired: i64) -> Option<Health> {
    let ready = count(status, "readyReplicas");
    if ready < desired {
        return Some(incomplete(ready, desired, "ready"));
    }
    // StatefulSets of old clusters do not report availableReplicas.
    let available = status.get("availableReplicas").and_then(Value::as_i64)?;
    (available < desired).then(|| incomplete(available, desired, "available"))
}

fn incomplete(have: i64, desired: i64, word: &str) -> Health {
    let reason = match word {
        "ready" => "NotReady",
        "available" => "NotAvailable",
        "created" => "Creating",
        _ => "RollingOut",
    };
    Health::progressing(reason, format!("{have}/{desired} replicas {word}"))
}

fn old_replicas(old: i64) -> Health {
    let noun = if old == 1 { "replica" } else { "replicas" };
    Health::progressing("RollingOut", format!("waiting for {old} old {noun} to stop"))
}

/// A paused rollout is not ready, although nothing failed.
fn paused_rollout(updated: i64, desired: i64) -> Health {
    let message = format!("the rollout is paused with {updated}/{desired} replicas updated");
    Health::new(HealthState::Suspended, "Paused", message)
}

fn all_ready(desired: i64) -> Health {
    Health::ready("Ready", format!("{desired}/{desired} replicas ready"))
}

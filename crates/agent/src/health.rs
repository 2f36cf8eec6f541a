//! Pure rules that determine whether an object is ready, progressing or failed, from its last known state.
//!
//! The rules are those of kstatus, so that Brokkr agrees with well-known tools, with these corrections: a
//! Job is ready when it is complete, not when it has started. A failed Pod has failed. A volume claim that
//! waits for its first consumer is ready. A StatefulSet with `OnDelete` still needs its replicas. A
//! condition of an older generation is ignored. A paused rollout is suspended, not progressing. A custom
//! resource without a status is progressing during a grace period, then ready.
//!
//! A delivery does not wait until its objects are ready, except for Namespaces and definitions.

use brokkr_manifest::order::is_built_in;
use jiff::Timestamp;
use serde_json::Value;

mod cluster;
mod conditions;
mod custom;
mod replicas;
mod running;
mod scaling;
#[cfg(test)]
mod tests;
mod verdict;

pub use verdict::{Health, HealthState, ObjectView, SCHEDULING_GRACE, STATUS_GRACE};
use verdict::{in_grace, waiting_for_controller};

use crate::resource::{Kind, RECORD_GROUP};

type Rule = fn(&ObjectView<'_>, Timestamp) -> Health;

/// The built-in kinds with a meaningful status. All other built-in kinds are ready once they are applied.
/// Custom resources are evaluated by their conditions.
const RULES: &[(&str, &str, Rule)] = &[
    ("apps", "Deployment", replicas::deployment),
    ("apps", "StatefulSet", replicas::stateful_set),
    ("apps", "DaemonSet", replicas::daemon_set),
    ("apps", "ReplicaSet", replicas::replica_set),
    ("", "ReplicationController", replicas::replica_set),
    ("batch", "Job", running::job),
    ("batch", "CronJob", running::cron_job),
    ("", "Pod", running::pod),
    ("autoscaling", "HorizontalPodAutoscaler", scaling::autoscaler),
    ("policy", "PodDisruptionBudget", scaling::disruption_budget),
    ("", "Service", cluster::service),
    ("networking.k8s.io", "Ingress", cluster::ingress),
    ("", "PersistentVolumeClaim", cluster::claim),
    ("", "Namespace", cluster::namespace),
    ("apiextensions.k8s.io", "CustomResourceDefinition", cluster::definition),
    ("apiregistration.k8s.io", "APIService", cluster::api_service),
];

fn rule(group: &str, kind: &str) -> Option<Rule> {
    RULES.iter().find(|rule| (rule.0, rule.1) == (group, kind)).map(|rule| rule.2)
}

/// Returns whether the health of this kind depends on more than its metadata. For all other kinds, the agent
/// watches only metadata, so that the data of live Secrets never enters this process.
#[must_use]
pub fn reads_status(kind: &Kind) -> bool {
    // The agent wrote its own records, so it knows their content.
    kind.group != RECORD_GROUP && (rule(&kind.group, &kind.kind).is_some() || !is_built_in(&kind.group))
}

/// Returns the health of one object.
pub fn health(object: &ObjectView<'_>, now: Timestamp) -> Health {
    if object.deletion {
        return Health::new(HealthState::Terminating, "Terminating", "being deleted");
    }
    if let Some(health) = not_observed(object) {
        return health;
    }
    rule(object.group, object.kind).unwrap_or(custom::resource)(object, now)
}

/// Returns whether the object is a Job that is complete.
pub fn is_completed(object: &ObjectView<'_>) -> bool {
    (object.group, object.kind) == ("batch", "Job") && conditions::find_true(object, "Complete").is_some()
}

/// Returns when to evaluate the object again, if its health may change without an event.
pub fn recheck_at(object: &ObjectView<'_>, now: Timestamp) -> Option<Timestamp> {
    let grace = match (object.group, object.kind) {
        ("", "Pod") if running::is_unschedulable(object) => SCHEDULING_GRACE,
        (group, _) if !is_built_in(group) && custom::has_no_status(object) => STATUS_GRACE,
        _ => return None,
    };
    in_grace(object, grace, now).then(|| object.created?.checked_add(grace).ok()).flatten()
}

/// Returns a verdict if the controller has not processed the newest specification: the status is then
/// outdated.
fn not_observed(object: &ObjectView<'_>) -> Option<Health> {
    let observed = object.status.get("observedGeneration").and_then(Value::as_i64);
    // These controllers always write it, so if it is absent, they have not processed the object yet.
    let always = match object.group {
        "apps" => rule(object.group, object.kind).is_some(),
        group => group.is_empty() && object.kind == "ReplicationController",
    };
    match (observed, object.generation) {
        (Some(observed), Some(generation)) if observed != generation => Some(waiting_for_controller()),
        (None, Some(_)) if always => Some(waiting_for_controller()),
        _ => None,
    }
}

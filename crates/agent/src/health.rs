//! Is a resource ready, on its way, or broken? Pure rules over what the API server last said.
//!
//! They are those of kstatus, so that Brokkr agrees with the tools that people know, with its known traps fixed:
//! a Job is ready when it is complete rather than started, a failed Pod has failed, a claim that waits for its
//! first consumer is fine, a StatefulSet with `OnDelete` still needs its replicas, a condition about an older
//! generation says nothing, a paused rollout is held rather than on its way, and a custom resource that its
//! controller has not looked at yet gets a moment.
//!
//! Health is an observation. Nothing waits for it but people, and edges that a manifest asks for.

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

/// The built-in kinds with a meaningful status. All other built-in kinds are ready once they are applied, and
/// custom resources are what their conditions say.
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

/// Whether the health of this kind is read from more than its metadata. Everything else is watched by metadata alone,
/// so that the data of live Secrets never enters this process.
#[must_use]
pub fn reads_status(kind: &Kind) -> bool {
    // The agent's own records say nothing that it does not know.
    kind.group != RECORD_GROUP && (rule(&kind.group, &kind.kind).is_some() || !is_built_in(&kind.group))
}

/// The health of one object.
pub fn health(object: &ObjectView<'_>, now: Timestamp) -> Health {
    if object.deletion {
        return Health::new(HealthState::Terminating, "Terminating", "being deleted");
    }
    if let Some(health) = not_observed(object) {
        return health;
    }
    rule(object.group, object.kind).unwrap_or(custom::resource)(object, now)
}

/// When the passing of time alone may change the verdict: the time to ask again, if no event comes before it.
pub fn recheck_at(object: &ObjectView<'_>, now: Timestamp) -> Option<Timestamp> {
    let grace = match (object.group, object.kind) {
        ("", "Pod") if running::is_unschedulable(object) => SCHEDULING_GRACE,
        (group, _) if !is_built_in(group) && custom::has_no_status(object) => STATUS_GRACE,
        _ => return None,
    };
    in_grace(object, grace, now).then(|| object.created?.checked_add(grace).ok()).flatten()
}

/// Everything else in the status is about an older specification.
fn not_observed(object: &ObjectView<'_>) -> Option<Health> {
    let observed = object.status.get("observedGeneration").and_then(Value::as_i64);
    // These controllers always write it, so its absence means that they have not been here yet.
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

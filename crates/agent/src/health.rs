//! Is a resource ready, on its way, or broken? Pure rules over what the API server last said.
//!
//! They are those of kstatus, so that Brokkr agrees with the tools that people know, with its known traps fixed:
//! a Job is ready when it is complete rather than started, a failed Pod has failed, a claim that waits for its
//! first consumer is fine, a StatefulSet with `OnDelete` still needs its replicas, a condition about an older
//! generation says nothing, a paused rollout is held rather than on its way, and a custom resource that its
//! controller has not looked at yet gets a moment.
//!
//! Health is an observation. Nothing waits for it but people, and edges that a manifest asks for.

use std::collections::BTreeMap;

use brokkr_manifest::order::is_built_in;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod cluster;
mod conditions;
mod custom;
mod replicas;
mod running;
mod scaling;
#[cfg(test)]
mod tests;

/// How long a custom resource may be without a status before that counts as having none.
pub const STATUS_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// How long the scheduler may find no node for a Pod before that counts as a failure.
pub const SCHEDULING_GRACE: SignedDuration = SignedDuration::from_secs(15);

/// What the rules look at: borrowed, so that a watch event can be judged without copying it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    pub kind: &'a str,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deletion: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    pub annotations: &'a BTreeMap<String, String>,
    /// `Null` if there is none.
    pub spec: &'a Value,
    /// `Null` if there is none.
    pub status: &'a Value,
}

/// A verdict, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub state: HealthState,
    /// One word in CamelCase, for machines and narrow columns.
    pub reason: String,
    /// A few words for people, such as "2/3 replicas ready".
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// It does what its manifest asks for.
    Ready,
    /// On its way there, as far as one can see.
    Progressing,
    /// It will not get there by itself.
    Failed,
    /// Held on purpose, half-way: it goes on when somebody lets it.
    Suspended,
    /// Being deleted.
    Terminating,
    /// The API server does not say.
    Unknown,
}

impl Health {
    fn new(state: HealthState, reason: &str, message: impl AsRef<str>) -> Self {
        Self { state, reason: reason.to_owned(), message: shortened(message.as_ref()) }
    }

    fn ready(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Ready, reason, message)
    }

    fn progressing(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Progressing, reason, message)
    }

    fn failed(reason: &str, message: impl AsRef<str>) -> Self {
        Self::new(HealthState::Failed, reason, message)
    }
}

/// Controllers put whole stack traces into messages; a report carries thousands of these.
fn shortened(message: &str) -> String {
    const LONGEST: usize = 512;
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

type Rule = fn(&ObjectView<'_>, Timestamp) -> Health;

/// The built-in kinds whose status tells something. All other built-in kinds are ready once they are applied, and
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

/// Whether the health of this kind is read from more than its metadata.
#[must_use]
pub fn reads_status(group: &str, kind: &str) -> bool {
    rule(group, kind).is_some() || !is_built_in(group)
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
        ("", "Pod") if running::waits_for_a_node(object) => SCHEDULING_GRACE,
        (group, _) if !is_built_in(group) && custom::has_no_status(object) => STATUS_GRACE,
        _ => return None,
    };
    in_grace(object, grace, now).then(|| object.created?.checked_add(grace).ok()).flatten()
}

/// Younger than `grace`. An object from the far future is not young: that is a clock gone wrong.
fn in_grace(object: &ObjectView<'_>, grace: SignedDuration, now: Timestamp) -> bool {
    object.created.is_some_and(|created| now.duration_since(created).abs() < grace)
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

fn waiting_for_controller() -> Health {
    Health::progressing("GenerationNotObserved", "its controller has not seen the newest change yet")
}

/// A count in a status or specification; the API server leaves out zeros.
fn count(value: &Value, field: &str) -> i64 {
    value.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

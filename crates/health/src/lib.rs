//! Pure rules that determine whether an object is ready, progressing or failed, from its last known state.
//!
//! The rules are those of kstatus, so that Brokkr agrees with well-known tools, with these corrections: a
//! Job is ready when it is complete, not when it has started. A failed Pod has failed. A volume claim that
//! waits for its first consumer is ready. A StatefulSet with `OnDelete` still needs its replicas. A
//! condition of an older generation is ignored. A paused rollout is suspended, not progressing. A custom
//! resource without a status is progressing during a grace period, then ready.
//!
//! A delivery does not wait until its objects are ready, except for Namespaces and definitions.
//!
//! The first of these decides:
//!
//! 1. For a built-in kind of Kubernetes, its function in `cluster`, `replicas`, `running` or `scaling`.
//! 2. For a custom kind, a [`HealthRule`] of the caller.
//! 3. A built-in [`HealthRule`] for a common custom kind, in `rules.yaml`.
//! 4. The standard conditions, in `custom`.

use brokkr_api::health_rules::HealthRule;
use brokkr_manifest::order::is_built_in;
use jiff::Timestamp;
use serde_json::Value;

mod cluster;
mod conditions;
mod custom;
mod evaluate;
mod fields;
mod live;
mod replicas;
mod rules;
mod running;
mod scaling;
#[cfg(test)]
mod tests;
mod verdict;

pub use live::LiveObject;
pub use rules::parse_rules;
pub use verdict::{Health, HealthState, ObjectView, SCHEDULING_GRACE, STATUS_GRACE};
use verdict::{in_grace, waiting_for_controller};

type Rule = fn(&ObjectView<'_>, Timestamp) -> Health;

/// The built-in kinds with a meaningful status. All other built-in kinds are ready once they are applied.
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

/// What decides the health of a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AppliedRule<'r> {
    /// The function for a built-in kind.
    BuiltInKind,
    /// A rule of the caller.
    Given(&'r HealthRule),
    /// A built-in rule for a custom kind.
    BuiltInRule(&'r HealthRule),
    /// The standard conditions.
    Conditions,
}

/// The health of an object, and what decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'r> {
    pub health: Health,
    pub rule: AppliedRule<'r>,
}

/// Returns whether the health of this kind depends on more than its metadata.
#[must_use]
pub fn reads_status(group: &str, kind: &str) -> bool {
    rule(group, kind).is_some() || !is_built_in(group)
}

/// Returns the health of one object.
pub fn health(object: &ObjectView<'_>, now: Timestamp) -> Health {
    decide(object, &[], now).health
}

/// Returns the health of one object, and what decided it. For a custom kind, the first of the `given` rules that
/// matches it wins over the built-in rules.
pub fn decide<'r>(object: &ObjectView<'_>, given: &'r [HealthRule], now: Timestamp) -> Decision<'r> {
    let rule = applied_rule(object.group, object.kind, given);
    let health = if object.deletion {
        Health::new(HealthState::Terminating, "Terminating", "being deleted")
    } else {
        not_observed(object).unwrap_or_else(|| by_rule(rule, object, now))
    };
    Decision { health, rule }
}

fn applied_rule<'r>(group: &str, kind: &str, given: &'r [HealthRule]) -> AppliedRule<'r> {
    if rule(group, kind).is_some() {
        AppliedRule::BuiltInKind
    } else if is_built_in(group) {
        AppliedRule::Conditions
    } else if let Some(rule) = rules::matching(given, group, kind) {
        AppliedRule::Given(rule)
    } else {
        rules::built_in(group, kind).map_or(AppliedRule::Conditions, AppliedRule::BuiltInRule)
    }
}

fn by_rule(applied: AppliedRule<'_>, object: &ObjectView<'_>, now: Timestamp) -> Health {
    match applied {
        AppliedRule::Given(rule) | AppliedRule::BuiltInRule(rule) => evaluate::evaluate(rule, object),
        AppliedRule::BuiltInKind | AppliedRule::Conditions => {
            rule(object.group, object.kind).unwrap_or(custom::resource)(object, now)
        }
    }
}

/// Returns whether the object is a Job that is complete.
pub fn is_completed(object: &ObjectView<'_>) -> bool {
    (object.group, object.kind) == ("batch", "Job") && conditions::find_true(object, "Complete").is_some()
}

/// Returns when to evaluate the object again, if its health may change without an event.
pub fn recheck_at(object: &ObjectView<'_>, given: &[HealthRule], now: Timestamp) -> Option<Timestamp> {
    let grace = match (object.group, object.kind) {
        ("", "Pod") if running::is_unschedulable(object) => SCHEDULING_GRACE,
        (group, kind)
            if applied_rule(group, kind, given) == AppliedRule::Conditions
                && !is_built_in(group)
                && custom::has_no_status(object) =>
        {
            STATUS_GRACE
        }
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

//! Objects as the API server returns them, and the resulting health.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::HealthState::{Progressing, Ready, Terminating};
use super::*;

mod cluster;
mod custom;
mod evaluate;
mod fixtures;
mod replicas;
mod running;
mod scaling;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

const NO_ANNOTATIONS: BTreeMap<String, String> = BTreeMap::new();

/// Returns the health of an object of generation 2 that was created `age` seconds ago.
fn judge_aged(age: i64, kind: &str, spec: Value, status: Value) -> Health {
    judge_annotated(&NO_ANNOTATIONS, age, kind, spec, status)
}

fn judge_annotated(
    annotations: &BTreeMap<String, String>,
    age: i64,
    kind: &str,
    spec: Value,
    status: Value,
) -> Health {
    let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
    let created = NOW.checked_sub(SignedDuration::from_secs(age)).ok();
    let object = ObjectView {
        group,
        kind,
        generation: Some(2),
        deletion: false,
        created,
        annotations,
        spec: &spec,
        status: &status,
    };
    health(&object, NOW)
}

/// Checks state, reason and message of objects that were created an hour ago.
#[track_caller]
fn expect(kind: &str, table: &[(HealthState, &str, &str, Value, Value)]) {
    for (state, reason, message, spec, status) in table {
        let found = judge_aged(3600, kind, spec.clone(), status.clone());
        assert_eq!(found, Health::new(*state, reason, message), "{kind} {spec} {status}");
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "details" })
}

fn with(mut status: Value, fields: Value) -> Value {
    status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    status
}

#[test]
fn an_object_that_is_being_deleted_is_terminating() {
    let status = json!({ "phase": "Active" });
    let null = Value::Null;
    let object = ObjectView {
        group: "",
        kind: "Namespace",
        generation: None,
        deletion: true,
        created: None,
        annotations: &NO_ANNOTATIONS,
        spec: &null,
        status: &status,
    };
    assert_eq!(health(&object, NOW).state, Terminating);
}

#[test]
fn a_recheck_is_scheduled_when_the_health_depends_on_time() {
    let null = Value::Null;
    let created = NOW.checked_sub(SignedDuration::from_secs(4)).unwrap();
    let mut object = ObjectView {
        group: "example.com",
        kind: "Widget",
        generation: Some(1),
        deletion: false,
        created: Some(created),
        annotations: &NO_ANNOTATIONS,
        spec: &null,
        status: &null,
    };
    let again = recheck_at(&object, &[], NOW).unwrap();
    assert_eq!(again, created.checked_add(STATUS_GRACE).unwrap());
    assert_eq!((health(&object, NOW).state, health(&object, again).state), (Progressing, Ready));
    assert_eq!(recheck_at(&object, &[], again), None);
    for (group, kind) in [("", "ConfigMap"), ("cert-manager.io", "Certificate")] {
        (object.group, object.kind) = (group, kind);
        assert_eq!(recheck_at(&object, &[], NOW), None, "{group}/{kind}");
    }
}

#[test]
fn long_messages_are_truncated_and_states_are_serialised_in_lower_case() {
    let cut = Health::failed("Long", "ä".repeat(10_000));
    assert_eq!(cut.message.to_string().chars().count(), 513);
    let wire = serde_json::to_value(Health::ready("Ready", "3/3 replicas ready")).unwrap();
    assert_eq!(wire, json!({ "state": "ready", "reason": "Ready", "message": "3/3 replicas ready" }));
}

/// A metadata-only watch delivers no status, so an object of a kind whose rule reads the status would never
/// become ready.
#[test]
fn f6_every_kind_with_a_rule_is_watched_in_full() {
    for (group, kind, _) in RULES {
        assert!(reads_status(group, kind), "{group}/{kind}");
    }
    for (group, kind) in [("example.com", "Widget"), ("gateway.networking.k8s.io", "HTTPRoute")] {
        assert!(reads_status(group, kind), "{group}/{kind}");
    }
    // The agent must not read the data of live Secrets.
    for (group, kind) in [("", "Secret"), ("", "ConfigMap"), ("rbac.authorization.k8s.io", "Role")] {
        assert!(!reads_status(group, kind), "{group}/{kind}");
        assert_eq!(judge_aged(0, &format!("{group}/{kind}"), Value::Null, Value::Null).state, Ready);
    }
}

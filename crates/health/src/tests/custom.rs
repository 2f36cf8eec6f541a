//! Custom resources, and kinds without a rule.

use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready};
use super::*;

#[test]
fn the_conditions_determine_the_health_of_a_custom_resource() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "conditions": conditions });
    let unseen = "its controller has not processed the newest change yet";
    let stale = |kind| with(condition(kind, "True", "Old"), json!({ "observedGeneration": 1 }));
    expect(
        "example.com/Widget",
        &[
            (Ready, "Succeeded", "details", none(), conditions(&[condition("Ready", "True", "Succeeded")])),
            (
                Progressing,
                "Waiting",
                "details",
                none(),
                conditions(&[condition("Ready", "False", "Waiting")]),
            ),
            (Progressing, "NotReady", "details", none(), conditions(&[condition("Ready", "Unknown", "")])),
            (
                Failed,
                "Broken",
                "details",
                none(),
                conditions(&[condition("Ready", "False", "x"), condition("Stalled", "True", "Broken")]),
            ),
            (
                Progressing,
                "Busy",
                "details",
                none(),
                conditions(&[condition("Ready", "True", "x"), condition("Reconciling", "True", "Busy")]),
            ),
            (
                Ready,
                "Done",
                "details",
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
                "details",
                none(),
                conditions(&[stale("Stalled"), stale("Reconciling"), condition("Ready", "True", "Done")]),
            ),
            (Ready, "Applied", "applied", none(), json!({ "observedGeneration": 2 })),
            (Ready, "Applied", "applied", none(), json!({ "conditions": "nonsense" })),
        ],
    );
}

#[test]
fn a_custom_resource_without_status_counts_as_ready_after_a_grace_period() {
    for status in [json!(null), json!({})] {
        assert_eq!(
            judge_aged(9, "example.com/Widget", json!({}), status.clone()).reason.code(),
            "WaitingForStatus"
        );
        assert_eq!(judge_aged(10, "example.com/Widget", json!({}), status.clone()).state, Ready);
        // A clock that is an hour off must not delay a stack by an hour.
        assert_eq!(judge_aged(-3600, "example.com/Widget", json!({}), status).state, Ready);
    }
    assert_eq!(
        judge_aged(0, "gateway.networking.k8s.io/ReferenceGrant", json!({}), json!(null)).state,
        Progressing
    );
}

#[test]
fn f6_a_custom_resource_with_a_rule_is_not_ready_before_it_has_a_status() {
    for status in [json!(null), json!({})] {
        let health = judge_aged(3600, "gateway.networking.k8s.io/HTTPRoute", json!({}), status);
        assert_eq!((health.state, health.reason.code()), (Progressing, "WaitingForStatus"));
    }
}

#[test]
fn other_kinds_are_ready_at_once() {
    for kind in [
        "ConfigMap",
        "Secret",
        "rbac.authorization.k8s.io/Role",
        "networking.k8s.io/NetworkPolicy",
        "storage.k8s.io/StorageClass",
    ] {
        assert_eq!(
            judge_aged(0, kind, json!({}), json!(null)),
            Health::ready("Applied", "applied"),
            "{kind}"
        );
    }
}

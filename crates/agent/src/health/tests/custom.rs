//! Custom resources, and kinds without a rule.

use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready};
use super::*;

#[test]
fn a_custom_resource_is_what_its_conditions_say() {
    let none = || json!(null);
    let conditions = |conditions: &[Value]| json!({ "conditions": conditions });
    let unseen = "its controller has not processed the newest change yet";
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
        assert_eq!(
            judge_aged(9, "example.com/Widget", json!({}), status.clone()).reason.code(),
            "WaitingForStatus"
        );
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

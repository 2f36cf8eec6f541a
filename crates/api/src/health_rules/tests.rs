//! Rules as they are written, and what is refused.

use serde_json::{Value, json};

use super::*;
use crate::report::ConditionStatus;

fn rule(value: Value) -> Result<HealthRule, String> {
    let rule: HealthRule = serde_json::from_value(value).map_err(|error| error.to_string())?;
    rule.check().map(|()| rule)
}

/// Returns a rule with one check in `ready`.
fn with_check(check: Value) -> Result<HealthRule, String> {
    rule(json!({ "groups": ["example.com"], "kinds": ["Widget"], "ready": [check] }))
}

#[track_caller]
fn refused(rule: Result<HealthRule, String>, message: &str) {
    let error = rule.unwrap_err();
    assert!(error.contains(message), "{error}");
}

#[test]
fn a_check_is_a_condition_or_a_comparison_of_a_field() {
    let written = rule(json!({
        "groups": ["example.com"],
        "kinds": ["Widget"],
        "failed": [{ "condition": "Ready", "status": false, "reasons": ["Broken"] }],
        "suspended": [{ "field": "metadata.annotations[\"example.com/paused\"]", "exists": true }],
        "ready": [
            { "condition": "Accepted", "conditions": "status.parents[*].conditions" },
            { "field": "status.readyReplicas", "at_least_field": "spec.replicas", "or_absent": true },
        ],
    }));
    let written = written.unwrap();
    let Check::Condition(ready) = &written.failed[0] else { panic!("{written:?}") };
    assert_eq!(
        (ready.status, ready.conditions.to_string().as_str()),
        (ConditionStatus::False, "status.conditions")
    );
    let Check::Condition(accepted) = &written.ready[0] else { panic!("{written:?}") };
    assert_eq!((accepted.status, accepted.reasons.len()), (ConditionStatus::True, 0));
    let Check::Field(replicas) = &written.ready[1] else { panic!("{written:?}") };
    assert_eq!(replicas.comparison, Comparison::AtLeastField("spec.replicas".parse().unwrap()));
    assert_eq!(written.to_string(), "example.com/Widget");
    let text = serde_json::to_string(&written).unwrap();
    assert_eq!(serde_json::from_str::<HealthRule>(&text).unwrap(), written);
}

#[test]
fn a_rule_matches_a_group_or_the_groups_below_a_domain() {
    let check = json!({ "condition": "Ready" });
    let matches = |group: &str, kinds: &[&str], of: &str| {
        let rule = rule(json!({ "groups": [group], "kinds": kinds, "ready": [check] })).unwrap();
        let (group, kind) = of.split_once('/').unwrap();
        rule.matches(group, kind)
    };
    assert!(matches("example.com", &["Widget", "Gadget"], "example.com/Gadget"));
    assert!(!matches("example.com", &["Widget"], "example.com/Gadget"));
    assert!(!matches("example.com", &["*"], "a.example.com/Widget"));
    assert!(matches("*.example.com", &["*"], "a.b.example.com/Widget"));
    assert!(!matches("*.example.com", &["*"], "example.com/Widget"));
    assert!(!matches("*.example.com", &["*"], "other-example.com/Widget"));
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_with_the_reason() {
    let with = |group: &str, kinds: Value, ready: Value| {
        rule(json!({ "groups": [group], "kinds": kinds, "ready": ready }))
    };
    let ready = || json!([{ "condition": "Ready" }]);
    for group in ["", "*", "Example.com", "a..b", "*example.com", "*.*.com"] {
        refused(with(group, json!(["Widget"]), ready()), "is not an API group");
    }
    refused(
        rule(json!({ "groups": [], "kinds": ["Widget"], "ready": ready() })),
        "groups must have between 1 and 100 entries",
    );
    refused(with("example.com", json!([]), ready()), "kinds must have between 1 and 100 entries");
    refused(with("example.com", json!(["*", "Widget"]), ready()), "\"*\" is not a kind");
    refused(with("example.com", json!(["example.com/Widget"]), ready()), "is not a kind");
    refused(with("example.com", json!(["Widget"]), json!([])), "a check without or_absent");
    refused(with_check(json!({ "condition": "Ready", "or_absent": true })), "a check without or_absent");
    refused(
        rule(json!({
            "groups": ["example.com"], "kinds": ["*"], "ready": ready(),
            "failed": [{ "field": "status.phase", "equals": "Failed", "or_absent": true }],
        })),
        "example.com/*: or_absent is only for checks in ready",
    );
    let many: Vec<Value> = (0..51).map(|_| json!({ "condition": "Ready" })).collect();
    refused(with("example.com", json!(["*"]), json!(many)), "at most 50 checks");
    refused(
        rule(json!({ "groups": ["example.com"], "kinds": ["*"], "ready": ready(), "degraded": [] })),
        "degraded",
    );
}

#[test]
fn a_check_that_makes_no_sense_is_refused_with_the_reason() {
    let one_comparison = "exactly one of equals, one_of, exists, equals_field and at_least_field";
    for (check, message) in [
        (json!({}), "either condition or field"),
        (json!({ "condition": "Ready", "field": "status.phase" }), "either condition or field"),
        (json!({ "condition": "" }), "the type of a condition"),
        (json!({ "condition": "Ready", "status": "yes" }), "True, False or Unknown"),
        (json!({ "condition": "Ready", "equals": "x" }), "has only status, reasons"),
        (json!({ "condition": "Ready", "conditions": "spec.conditions" }), "must be below status"),
        (json!({ "field": "status.phase" }), one_comparison),
        (json!({ "field": "status.phase", "equals": "x", "exists": true }), one_comparison),
        (json!({ "field": "status.phase", "exists": true, "status": "True" }), "not for the field"),
        (json!({ "field": "status.a", "equals_field": "spec.b[*]" }), "without [*]"),
        (json!({ "field": "status.a", "exists": true, "message": "status.b[*].c" }), "without [*]"),
        (json!({ "field": "status.phase", "matches": "x" }), "matches"),
    ] {
        refused(with_check(check), message);
    }
}

#[test]
fn paths_are_written_as_they_are_read() {
    for path in [
        "spec",
        "status.phase",
        "status.parents[*].conditions",
        "status[\"a.b\"][*][*].c",
        "metadata.generation",
        "metadata.annotations[\"example.com/paused\"]",
        "metadata.annotations.paused",
    ] {
        assert_eq!(path.parse::<FieldPath>().unwrap().to_string(), path);
    }
    let quoted: FieldPath = "status['a.b']['c']".parse().unwrap();
    assert_eq!(quoted.to_string(), "status[\"a.b\"].c");
    let many = format!("status{}", ".a".repeat(21));
    for (path, message) in [
        ("", "a name is missing"),
        ("status.", "a name is missing"),
        ("status..phase", "a name is missing"),
        ("status.a b", "in brackets and quotes"),
        ("status[0]", "* for every element"),
        ("status[\"a]", "* for every element"),
        ("status[\"\"]", "* for every element"),
        ("data.password", "can be read"),
        ("metadata.labels.app", "can be read"),
        ("metadata", "can be read"),
        (many.as_str(), "more than 20 steps"),
    ] {
        let error = path.parse::<FieldPath>().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

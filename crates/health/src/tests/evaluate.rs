//! Rules that are written as data.

use proptest::prelude::*;
use serde_json::json;

use super::super::HealthState::{Failed, Progressing, Ready, Suspended};
use super::*;

/// A rule with every kind of check.
const RULE: &str = r#"
- groups: [example.com]
  kinds: [Widget]
  failed:
    - {condition: Ready, status: False, reasons: [Broken]}
    - {field: "status.parts[*].phase", equals: Failed, message: status.error}
  suspended:
    - {field: 'metadata.annotations["example.com/paused"]', equals: "true"}
  ready:
    - condition: Ready
    - {field: "status.parts[*].phase", one_of: [Done, Skipped]}
    - {field: status.ready, at_least_field: spec.wanted}
    - {field: status.version, equals_field: spec.version, or_absent: true}
    - {field: status.lock, exists: false}
"#;

fn rules() -> Vec<HealthRule> {
    parse_rules(RULE).unwrap()
}

fn judge(spec: Value, status: Value) -> Health {
    judge_with(&NO_ANNOTATIONS, spec, status)
}

fn judge_with(annotations: &BTreeMap<String, String>, spec: Value, status: Value) -> Health {
    let object = ObjectView {
        group: "example.com",
        kind: "Widget",
        generation: Some(2),
        deletion: false,
        created: None,
        annotations,
        spec: &spec,
        status: &status,
    };
    let rules = rules();
    let decision = decide(&object, &rules, NOW);
    assert_eq!(decision.rule, AppliedRule::Given(&rules[0]));
    decision.health
}

fn spec() -> Value {
    json!({ "wanted": 2, "version": "v2" })
}

fn done() -> Value {
    json!({
        "conditions": [condition("Ready", "True", "AllDone")],
        "parts": [{ "phase": "Done" }, { "phase": "Skipped" }],
        "ready": 2,
        "version": "v2",
    })
}

#[track_caller]
fn expect_health(status: Value, state: HealthState, reason: &str, message: &str) {
    let status = with(done(), status);
    assert_eq!(judge(spec(), status.clone()), Health::new(state, reason, message), "{status}");
}

#[test]
fn an_object_is_ready_if_all_checks_hold_and_otherwise_the_first_that_does_not_is_named() {
    expect_health(json!({}), Ready, "AllDone", "details");
    expect_health(json!({ "version": null }), Ready, "AllDone", "details");
    let waiting = json!({ "conditions": [condition("Ready", "False", "Waiting")] });
    expect_health(waiting, Progressing, "Waiting", "details");
    let unknown = json!({ "conditions": [{ "type": "Ready", "status": "Unknown" }] });
    expect_health(unknown, Progressing, "NotReady", "the condition Ready is unknown");
    let missing = "its controller has not reported the condition Ready yet";
    expect_health(json!({ "conditions": [] }), Progressing, "WaitingForCondition", missing);
    let one_runs = json!({ "parts": [{ "phase": "Done" }, { "phase": "Running" }] });
    expect_health(one_runs, Progressing, "Running", "status.parts[*].phase is Running");
    let one_has_none = json!({ "parts": [{ "phase": "Done" }, {}] });
    expect_health(one_has_none, Progressing, "NotReady", "status.parts[*].phase is not set");
    expect_health(json!({ "ready": 1 }), Progressing, "NotReady", "status.ready is 1, spec.wanted is 2");
    let none_ready = "status.ready is not set, spec.wanted is 2";
    expect_health(json!({ "ready": null }), Progressing, "NotReady", none_ready);
    let old_version = "status.version is v1, spec.version is v2";
    expect_health(json!({ "version": "v1" }), Progressing, "NotReady", old_version);
    expect_health(json!({ "lock": {} }), Progressing, "NotReady", "status.lock is an object");
}

#[test]
fn an_empty_list_satisfies_no_check() {
    for parts in [json!([]), json!(null), json!("nonsense")] {
        let status = json!({ "parts": parts });
        expect_health(status, Progressing, "NotReady", "status.parts[*].phase is not set");
    }
}

#[test]
fn a_failed_check_wins_and_names_what_the_controller_reports() {
    let broken = json!({ "conditions": [condition("Ready", "False", "Broken")] });
    expect_health(broken, Failed, "Broken", "details");
    let parts = json!([{ "phase": "Done" }, { "phase": "Failed" }]);
    expect_health(json!({ "parts": parts }), Failed, "Failed", "status.parts[*].phase is Failed");
    expect_health(json!({ "parts": parts, "error": "no disk" }), Failed, "Failed", "no disk");
    let paused = BTreeMap::from([("example.com/paused".to_owned(), "true".to_owned())]);
    let health = judge_with(&paused, spec(), done());
    assert_eq!((health.state, health.reason.code()), (Suspended, "Suspended"));
    let failed = with(done(), json!({ "parts": parts }));
    assert_eq!(judge_with(&paused, spec(), failed).state, Failed);
}

#[test]
fn what_refers_to_an_older_generation_does_not_count() {
    let unseen = "its controller has not processed the newest change yet";
    let stale = |status, reason| with(condition("Ready", status, reason), json!({ "observedGeneration": 1 }));
    for condition in [stale("True", "AllDone"), stale("False", "Broken")] {
        let status = json!({ "conditions": [condition] });
        expect_health(status, Progressing, "GenerationNotObserved", unseen);
    }
    // Argo Rollouts writes it as text.
    for observed in [json!(1), json!("1")] {
        let status = json!({ "observedGeneration": observed, "parts": [{ "phase": "Failed" }] });
        expect_health(status, Progressing, "GenerationNotObserved", unseen);
    }
    expect_health(json!({ "observedGeneration": "2" }), Ready, "AllDone", "details");
}

#[test]
fn kubernetes_leaves_out_counts_that_are_zero() {
    let status = with(done(), json!({ "ready": null }));
    assert_eq!(judge(json!({ "wanted": 0, "version": "v2" }), status).state, Ready);
}

#[test]
fn given_rules_win_over_built_in_ones_but_not_for_kinds_of_kubernetes() {
    let text = "[{groups: [cert-manager.io], kinds: ['*'], ready: [{field: status.revision, exists: true}]}]";
    let given = parse_rules(text).unwrap();
    let applied = |group, kind| applied_rule(group, kind, &given);
    assert_eq!(applied("cert-manager.io", "Certificate"), AppliedRule::Given(&given[0]));
    assert!(matches!(applied("argoproj.io", "Rollout"), AppliedRule::BuiltInRule(_)));
    assert_eq!(applied("apps", "Deployment"), AppliedRule::BuiltInKind);
    assert_eq!(applied("", "ConfigMap"), AppliedRule::Conditions);
    assert_eq!(applied("example.com", "Widget"), AppliedRule::Conditions);
    let error = parse_rules("[{groups: [apps], kinds: [Deployment], ready: [{condition: Available}]}]");
    assert!(error.unwrap_err().contains("fixed rules"));
}

/// Any JSON, with the names that rules look for.
fn json_value() -> impl Strategy<Value = Value> {
    let words = vec!["Ready", "True", "False", "Healthy", "Degraded", "3", ""];
    let names = "conditions listeners message observedGeneration parents parts phase readyReplicas reason \
                 status type";
    let name = prop::sample::select(names.split(' ').collect::<Vec<_>>());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_makes_a_rule_panic(
        spec in json_value(), status in json_value(), generation in any::<Option<i64>>(),
    ) {
        let given = rules();
        for rule in rules::all_built_in().iter().chain(&given) {
            for group in &rule.groups {
                let group = group.replace('*', "a");
                let object = ObjectView {
                    group: &group,
                    kind: &rule.kinds[0],
                    generation,
                    deletion: false,
                    created: None,
                    annotations: &NO_ANNOTATIONS,
                    spec: &spec,
                    status: &status,
                };
                let health = decide(&object, &given, NOW).health;
                prop_assert!(matches!(health.state, Ready | Progressing | Failed | Suspended));
            }
        }
    }
}

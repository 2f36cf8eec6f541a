//! `brokkr health test`: needs no broker.

use serde_json::json;

use crate::fake_broker::{FakeBroker, Ran};

const ISSUED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../health/fixtures/cert-manager.io_Certificate/ready.yaml");
const FAILED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../health/fixtures/cert-manager.io_Certificate/failed.yaml");

const OBJECTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, generation: 1}
spec: {replicas: 1}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
status: {phase: Done}
";

const RULES: &str = "
- groups: [example.com]
  kinds: [Widget]
  ready:
    - {field: status.phase, equals: Running}
";

/// Runs without a broker in the environment.
fn health_test(home: &FakeBroker, arguments: &[&str], stdin: &str) -> Ran {
    let ran = home.run(&[&["health", "test"], arguments].concat(), &[], stdin);
    assert!(home.asked().is_empty());
    ran
}

#[test]
fn objects_are_shown_with_their_health_and_the_rule_that_decided() {
    let home = FakeBroker::start();
    let ran = health_test(&home, &["-f", ISSUED, "-f", "-"], OBJECTS).exits(0);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = ran.stdout.lines().skip(1).map(words).collect();
    assert_eq!(
        lines,
        [
            "Certificate shop/shop ready Ready Certificate is up to date and has not expired \
             built-in rule for cert-manager.io/Certificate",
            "Deployment shop/web ready Ready 1/1 replicas ready built-in kind",
            "Widget one ready Applied applied standard conditions",
        ]
    );
    let document = health_test(&home, &["-f", "-", "-o", "json"], OBJECTS).exits(0).json();
    assert_eq!(
        document["items"][1],
        json!({
            "group": "example.com", "kind": "Widget", "name": "one", "state": "ready", "reason": "Applied",
            "message": "applied", "decided_by": {"source": "conditions"},
        })
    );
    health_test(&home, &["-f", "-", "-o", "name"], OBJECTS)
        .exits(0)
        .prints_exactly("Deployment/shop/web\nWidget/one\n");
}

#[test]
fn a_failed_object_exits_with_3_and_one_that_is_not_ready_with_1() {
    let home = FakeBroker::start();
    let ran = health_test(&home, &["-f", FAILED, "-f", ISSUED], "").exits(3);
    ran.prints("order is in \"invalid\" state").says("1 of 2 objects failed");
    let rules = home.home.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let rules = rules.to_str().unwrap();
    let ran = health_test(&home, &["-f", "-", "--rules", rules, "-o", "json"], OBJECTS).exits(1);
    let widget = &ran.json()["items"][1];
    assert_eq!((&widget["state"], &widget["reason"]), (&json!("progressing"), &json!("Done")));
    let decided_by = json!({"source": "file", "file": rules, "rule": "example.com/Widget"});
    assert_eq!(widget["decided_by"], decided_by);
    assert_eq!(ran.stderr, "");
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let home = FakeBroker::start();
    let rules = home.home.path().join("rules.yaml");
    let rules_file = rules.to_str().unwrap();
    for (group, ready, message) in [
        ("example.com", "[]", "a check without or_absent"),
        ("apps", "[{condition: Available}]", "fixed rules"),
        ("example.com", "[{field: data.x, exists: true}]", "can be read"),
    ] {
        std::fs::write(&rules, format!("[{{groups: [{group}], kinds: ['*'], ready: {ready}}}]\n")).unwrap();
        let ran = health_test(&home, &["-f", "-", "--rules", rules_file], OBJECTS).exits(2);
        ran.says("rules.yaml is not a list of health rules").says(message);
    }
    let ran = health_test(&home, &["-f", "-"], "kind: Pod\n").exits(2);
    ran.says("cannot parse stdin").says("apiVersion is missing");
    health_test(&home, &["-f", "-"], "# nothing\n").exits(2).says("no objects");
    health_test(&home, &["-f", "missing.yaml"], "").exits(2).says("cannot read missing.yaml");
    health_test(&home, &[], "").exits(2).says("--filename");
}

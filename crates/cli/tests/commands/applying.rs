//! `brokkr apply`, and waiting for exactly the submitted version.

use crate::fake_broker::{FakeBroker, Ran};
use crate::sample::{STATUS, noted, object, page, row, stack};

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";

fn broker() -> FakeBroker {
    FakeBroker::start()
        .on("PUT /api/v1/stacks/web", 200, stack(&[]))
        .on("PUT /api/v1/stacks/web/targets", 200, stack(&["env=dev"]))
        .on("POST /api/v1/stacks/web/deployment-objects", 201, object(42))
}

fn apply(broker: &FakeBroker, more: &[&str]) -> Ran {
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    let arguments = [&["apply", "web", "-f", "-", "--to", "env=dev"], more].concat();
    broker.run(&arguments, &environment, MANIFEST)
}

#[test]
fn it_waits_until_every_agent_has_the_version() {
    let broker = broker()
        .on(STATUS, 200, page(&[row("a", 41, 41, "healthy"), row("b", 41, 41, "healthy")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "applied")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "healthy")]));
    let ran = apply(&broker, &["--wait"]).exits(0);
    assert_eq!(ran.stdout, "stack web: submitted as version 42 (1 resource, sha256 9f2c00000000)\n");
    ran.says("  b  applied, 1/1 ready\n").says("web is healthy on 2 agents");
    let asked = broker.asked();
    assert_eq!(asked[1].body, br#"{"agents":[],"selectors":["env=dev"]}"#);
    assert_eq!(asked[2].body, MANIFEST.as_bytes(), "exactly the bytes");
    let keys: Vec<_> = asked[..3].iter().map(|asked| &asked.headers["idempotency-key"]).collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
}

#[test]
fn a_failure_a_newer_version_and_a_timeout_have_different_exit_statuses() {
    let failed = noted(
        row("a", 42, 42, "failed"),
        "FieldImmutable",
        "Deployment shop/web",
        "spec.selector is immutable",
    );
    let failing = broker().on(STATUS, 200, page(&[failed]));
    let ran = apply(&failing, &["--wait"]).exits(3).says("error: version 42 failed on a\n");
    ran.says("Deployment shop/web: spec.selector is immutable").says("next: brokkr why web");

    let replaced = broker().on(STATUS, 200, page(&[row("a", 43, 42, "pending")]));
    apply(&replaced, &["--wait"]).exits(6).says("42 was replaced by 43 before it was on every agent");

    let slow = broker().on(STATUS, 200, page(&[row("a", 42, 41, "pending")]));
    let ran = apply(&slow, &["--wait", "--timeout", "1s"])
        .exits(124)
        .says("web was not healthy on every agent within 1s");
    ran.says("0 of 1 agent healthy at version 42 · 1 pending").says("why a: pending, wants 42, has 41");

    let untargeted = broker().on(STATUS, 200, page(&[]));
    apply(&untargeted, &["--wait", "--timeout", "1s"]).exits(124).says("no agents are targeted yet");
}

#[test]
fn json_is_one_document() {
    let broker = broker().on(STATUS, 200, page(&[row("a", 42, 42, "healthy")]));
    let ran = apply(&broker, &["--wait", "-o", "json"]).exits(0);
    assert_eq!(
        (&ran.json()["sequence_id"], &ran.json()["status"][0]["state"]),
        (&42.into(), &"healthy".into())
    );
    assert_eq!(apply(&broker, &["-o", "json"]).exits(0).json().get("status"), None);
}

#[test]
fn all_errors_of_a_manifest_are_shown_and_nothing_is_sent() {
    let broker = broker();
    let folder = broker.home.path().join("deploy");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("b.yaml"), "kind: Pod\n").unwrap();
    std::fs::write(folder.join("a.yml"), "- 1\n").unwrap();
    std::fs::write(folder.join("README.md"), "not a manifest").unwrap();
    let ran = broker.brokkr(&["apply", "web", "-f", folder.to_str().unwrap()]).exits(3);
    ran.says("a.yml: document 1").says("b.yaml: document 1").says("(BRK2004)");
    assert!(broker.asked().is_empty());
    broker.brokkr(&["apply", "web", "-f", "/nowhere.yaml"]).exits(2).says("cannot read /nowhere.yaml");
}

#[test]
fn targets_are_changed_without_submitting_anything() {
    let broker = FakeBroker::start().on("GET /api/v1/stacks/web", 200, stack(&["env=dev"])).on(
        "PUT /api/v1/stacks/web/targets",
        200,
        stack(&["env=prod"]),
    );
    let ran = broker.brokkr(&["stack", "retarget", "web", "--to", "env=prod", "--expect", "3"]).exits(0);
    ran.prints_exactly("stack web targets env=prod\n")
        .says("the targets of web change from env=dev to env=prod");
    let asked = broker.asked();
    assert_eq!(asked[1].body, br#"{"agents":[],"selectors":["env=prod"]}"#);
    assert!(asked[1].line.contains("?expect=3"), "{}", asked[1].line);
    broker.brokkr(&["stack", "retarget", "web"]).exits(2).says("--to");
    broker
        .brokkr(&["stack", "retarget", "web", "--to", "env=prod", "--expect", "x"])
        .exits(2)
        .says("expected a whole number");
}

#[test]
fn a_version_is_shown_as_it_was_submitted() {
    let mut marker = object(43);
    marker["is_deletion_marker"] = true.into();
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks/web/deployment-objects", 200, page(&[marker, object(42), object(41)]))
        .on_yaml("GET /api/v1/deployment-objects/42", MANIFEST)
        .on_yaml("GET /api/v1/deployment-objects/41", "old: true\n");
    broker.brokkr(&["stack", "manifest", "web"]).exits(0).prints_exactly(MANIFEST);
    broker.brokkr(&["stack", "manifest", "stack/web", "41"]).exits(0).prints_exactly("old: true\n");
    let empty = FakeBroker::start().on("GET /api/v1/stacks/web/deployment-objects", 200, page(&[]));
    empty.brokkr(&["stack", "manifest", "web"]).exits(5).says("the stack web has no version yet");
}

#[test]
fn a_message_and_a_commit_are_sent_with_the_version() {
    let broker = broker();
    let header = |name: &str| broker.posted().last().unwrap().headers.get(name).cloned();
    apply(&broker, &["-m", "für den Shop", "--commit", "ABCDEF0123"]).exits(0);
    assert_eq!(header("brokkr-message").as_deref(), Some("f%C3%BCr%20den%20Shop"));
    assert_eq!(header("brokkr-commit").as_deref(), Some("abcdef0123"));
    apply(&broker, &[]).exits(0);
    assert_eq!((header("brokkr-message"), header("brokkr-commit")), (None, None));

    let environment =
        [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x"), ("GITHUB_SHA", "0123456789")];
    broker.run(&["stack", "apply", "web", "-f", "-"], &environment, MANIFEST).exits(0);
    assert_eq!(header("brokkr-commit").as_deref(), Some("0123456789"), "from the CI environment");
    apply(&broker, &["--commit", "main"]).exits(2).says("hexadecimal digits");
    apply(&broker, &["-m", &"x".repeat(1025)]).exits(2).says("longer than 1024 characters");
}

#[test]
fn stacks_are_listed_and_shown() {
    let broker = FakeBroker::start().on("GET /api/v1/stacks", 200, page(&[stack(&["env=dev"])])).on(
        "GET /api/v1/stacks/web",
        200,
        stack(&["env=dev"]),
    );
    broker.brokkr(&["stack", "list"]).exits(0).prints("STACK").prints("env=dev");
    broker.brokkr(&["stack", "list", "-o", "name"]).exits(0).prints_exactly("stack/web\n");
    broker.brokkr(&["stack", "show", "web"]).exits(0).prints("targets:   env=dev");
}

//! `brokkr apply`, and waiting for exactly what was submitted.

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
    let arguments = [&["apply", "-f", "-", "--stack", "web", "--to", "env=dev"], more].concat();
    broker.run(&arguments, &environment, MANIFEST)
}

#[test]
fn it_waits_until_every_agent_has_what_was_submitted() {
    let broker = broker()
        .on(STATUS, 200, page(&[row("a", 41, 41, "healthy"), row("b", 41, 41, "healthy")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "applied")]))
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("b", 42, 42, "healthy")]));
    let ran = apply(&broker, &["--wait"]).exits(0);
    assert_eq!(ran.stdout, "stack web: submitted as 42 (1 resource, sha256 9f2c00000000)\n");
    ran.says("  b  applied, 1/1 ready\n").says("web is healthy on 2 agents");
    let asked = broker.asked();
    assert_eq!(asked[1].body, br#"{"agents":[],"selectors":["env=dev"]}"#);
    assert_eq!(asked[2].body, MANIFEST.as_bytes(), "exactly the bytes");
    let keys: Vec<_> = asked[..3].iter().map(|asked| &asked.headers["idempotency-key"]).collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
}

#[test]
fn a_failure_a_newer_version_and_the_end_of_patience_are_told_apart() {
    let failed = noted(
        row("a", 42, 42, "failed"),
        "FieldImmutable",
        "Deployment shop/web",
        "spec.selector is immutable",
    );
    let failing = broker().on(STATUS, 200, page(&[failed]));
    let ran = apply(&failing, &["--wait"]).exits(3).says("error: 42 failed on a\n");
    ran.says("Deployment shop/web: spec.selector is immutable").says("next: brokkr why web");

    let replaced = broker().on(STATUS, 200, page(&[row("a", 43, 42, "pending")]));
    apply(&replaced, &["--wait"]).exits(6).says("42 was replaced by 43 before it arrived everywhere");

    let slow = broker().on(STATUS, 200, page(&[row("a", 42, 41, "pending")]));
    let ran = apply(&slow, &["--wait", "--timeout", "1s"])
        .exits(124)
        .says("web has not arrived everywhere within 1s");
    ran.says("0 of 1 agent healthy at 42 · 1 pending").says("why a: pending, wants 42, has 41");

    let nobody = broker().on(STATUS, 200, page(&[]));
    apply(&nobody, &["--wait", "--timeout", "1s"]).exits(124).says("no agent is targeted yet");
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
fn a_broken_manifest_is_told_in_full_and_nothing_is_sent() {
    let broker = broker();
    let folder = broker.home.path().join("deploy");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("b.yaml"), "kind: Pod\n").unwrap();
    std::fs::write(folder.join("a.yml"), "- 1\n").unwrap();
    std::fs::write(folder.join("README.md"), "not a manifest").unwrap();
    let ran = broker.brokkr(&["apply", "-f", folder.to_str().unwrap(), "--stack", "web"]).exits(3);
    ran.says("a.yml: document 1").says("b.yaml: document 1").says("(BRK2004)");
    assert!(broker.asked().is_empty());
    broker
        .brokkr(&["apply", "-f", "/nowhere.yaml", "--stack", "web"])
        .exits(2)
        .says("cannot read /nowhere.yaml");
}

#[test]
fn targets_are_changed_without_submitting_anything() {
    let broker = FakeBroker::start().on("GET /api/v1/stacks/web", 200, stack(&["env=dev"])).on(
        "PUT /api/v1/stacks/web/targets",
        200,
        stack(&["env=prod"]),
    );
    let ran = broker.brokkr(&["retarget", "web", "--to", "env=prod", "--expect", "3"]).exits(0);
    ran.prints_exactly("stack web targets env=prod\n")
        .says("the targets of web change from env=dev to env=prod");
    let asked = broker.asked();
    assert_eq!(asked[1].body, br#"{"agents":[],"selectors":["env=prod"]}"#);
    assert!(asked[1].line.contains("?expect=3"), "{}", asked[1].line);
    broker.brokkr(&["retarget", "web"]).exits(2).says("--to");
    broker
        .brokkr(&["retarget", "web", "--to", "env=prod", "--expect", "x"])
        .exits(2)
        .says("use a whole number");
}

#[test]
fn a_version_is_shown_as_it_was_submitted() {
    let mut marker = object(43);
    marker["is_deletion_marker"] = true.into();
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks/web/deployment-objects", 200, page(&[marker, object(42), object(41)]))
        .on_yaml("GET /api/v1/deployment-objects/42", MANIFEST)
        .on_yaml("GET /api/v1/deployment-objects/41", "old: true\n");
    broker.brokkr(&["show", "web"]).exits(0).prints_exactly(MANIFEST);
    broker.brokkr(&["show", "stack/web", "41"]).exits(0).prints_exactly("old: true\n");
    let empty = FakeBroker::start().on("GET /api/v1/stacks/web/deployment-objects", 200, page(&[]));
    empty.brokkr(&["show", "web"]).exits(5).says("nothing was submitted to web yet");
}

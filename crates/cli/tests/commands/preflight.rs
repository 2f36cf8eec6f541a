//! `brokkr admin preflight` and `support-bundle` against a fake broker: requests, output and exit status.

use brokkr_api::ErrorCode;
use serde_json::{Value, json};

use crate::fake_broker::FakeBroker;
use crate::sample::{SHA, STACK_ID, TIME, agent, page, stack, whoami};

pub fn system() -> Value {
    json!({"installation": STACK_ID, "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "oldest_protocol": 1, "epoch": 1,
        "position": "1.7", "agents_to_report": 0, "stacks_ahead": 0, "stacks_unknown": 0, "stacks_unconfirmed": 0, "targets_kept": 0, "raised": []})
}

/// A broker with all responses except the state of the installation and of the audit chain.
pub fn broker() -> FakeBroker {
    let mut agents = page(&[agent("eu-1")]);
    agents["total"] = 1.into();
    FakeBroker::start()
        .on("GET /readyz", 200, json!({"whole": true, "causes": []}))
        .on("GET /api/v1/whoami", 200, whoami())
        .on("GET /api/v1/agents", 200, agents)
        .on("GET /api/v1/agents/eu-1/why", 200, json!({"agent_id": STACK_ID, "agent_name": "eu-1", "status": "ACTIVE",
            "presence": "silent", "last_seen_at": TIME, "events": [], "broken": null, "evidence": [], "stacks": [],
            "affected_stacks": 0}))
        .on("GET /api/v1/stacks", 200, page(&[]))
        .on("GET /api/v1/errors", 200, page(&[]))
        .on("GET /api/v1/api-tokens", 200, page(&[]))
        .on("GET /api/v1/webhooks", 200, page(&[]))
}

fn verdict(broken: Value) -> Value {
    json!({"project": "default", "links": 7, "last": {"project": "default", "number": 7, "hash": SHA}, "broken": broken,
        "next": null})
}

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let items = document["items"].as_array().unwrap();
    items.iter().find(|check| check["check"] == name).unwrap()
}

#[test]
fn warnings_exit_with_0_and_failed_checks_with_1() {
    let healthy = broker().on("GET /api/v1/system", 200, system()).on(
        "GET /api/v1/audit/verify",
        200,
        verdict(json!(null)),
    );
    // The fake broker lists its one agent for every presence.
    let ran =
        healthy.brokkr(&["admin", "preflight"]).exits(0).prints("hold             ok        not on hold");
    ran.prints("agents-silent: brokkr agent list --presence silent").prints("agents-silent    warning");
    let asked: Vec<String> = healthy.asked().into_iter().map(|asked| asked.line).collect();
    assert!(asked.iter().all(|line| line.starts_with("GET ")), "it only reads: {asked:?}");
    assert!(asked.iter().any(|line| line.contains("/api/v1/stacks?deleted=true")), "{asked:?}");
    let document = healthy.brokkr(&["admin", "preflight", "-o", "json"]).exits(0).json();
    let hold = json!({"check": "hold", "verdict": "ok", "reason": "not on hold", "next": null});
    assert_eq!(check(&document, "hold"), &hold);
    healthy.brokkr(&["admin", "preflight", "-o", "yaml"]).exits(0).prints("verdict: warning");
    healthy.brokkr(&["admin", "preflight", "-o", "name"]).exits(0).prints("check/audit\n");

    let broken = json!({"number": 7, "audit_id": 70, "why": "its entry was changed"});
    let bad =
        broker().on("GET /api/v1/system", 200, system()).on("GET /api/v1/audit/verify", 200, verdict(broken));
    bad.brokkr(&["admin", "preflight"])
        .exits(1)
        .prints("audit            failed    the chain is invalid at entry 7")
        .prints("audit: brokkr audit verify");
}

#[test]
fn pending_deletions_are_listed_with_a_command() {
    let mut deleted = stack(&[]);
    deleted["deleted_at"] = TIME.into();
    let pending = FakeBroker::start().on("GET /api/v1/stacks", 200, page(&[deleted])).on(
        "GET /api/v1/whoami",
        200,
        whoami(),
    );
    let document = pending.brokkr(&["admin", "preflight", "-o", "json"]).exits(1).json();
    let deletions = check(&document, "deletions");
    assert_eq!(deletions["verdict"], "warning");
    assert!(deletions["reason"].as_str().unwrap().starts_with("agents still have web ("), "{deletions}");
    assert_eq!(deletions["next"], format!("brokkr status {STACK_ID}"));
    assert_eq!(check(&document, "hold")["verdict"], "failed", "data that cannot be read is not ok");
}

#[test]
fn missing_permissions_are_a_warning() {
    let broker = broker()
        .refuses("GET /api/v1/system", ErrorCode::BRK1002, "requires the role admin")
        .refuses("GET /api/v1/audit/verify", ErrorCode::BRK1002, "requires the role owner");
    let document = broker.brokkr(&["admin", "preflight", "-o", "json"]).exits(0).json();
    for name in ["version", "hold", "restore", "audit"] {
        let check = check(&document, name);
        assert_eq!(check["verdict"], "warning");
        assert!(check["reason"].as_str().unwrap().starts_with("not allowed: requires the role"), "{check}");
    }
}

#[test]
fn a_refused_token_is_reported_once() {
    let broker =
        FakeBroker::start().refuses("GET /api/v1/whoami", ErrorCode::BRK1001, "the token is unknown");
    let document = broker.brokkr(&["admin", "preflight", "-o", "json"]).exits(1).json();
    let bad: Vec<&Value> =
        document["items"].as_array().unwrap().iter().filter(|check| check["verdict"] == "failed").collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!((&bad[0]["check"], &bad[0]["reason"]), (&json!("caller"), &json!("the token is unknown")));
    assert_eq!(broker.asked().len(), 1);
}

#[test]
fn an_unreachable_broker_is_a_failed_check() {
    let home = FakeBroker::start();
    let nowhere = [("BROKKR_SERVER", "http://127.0.0.1:9"), ("BROKKR_TOKEN", "brk_x")];
    let ran = home.run(&["admin", "preflight"], &nowhere, "").exits(1);
    ran.prints("broker           failed    connect: http://127.0.0.1:9").prints("skipped");
}

#[test]
fn a_support_bundle_is_readable_only_by_its_owner_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let broker = broker()
        .on("GET /api/v1/system", 200, system())
        .on("GET /api/v1/events", 200, page(&[]))
        .refuses("GET /api/v1/audit", ErrorCode::BRK1002, "requires the role owner")
        .on("GET /api/v1/audit/verify", 200, verdict(json!(null)));
    let file = broker.home.path().join("bundle.tar.gz");
    let named = file.to_str().unwrap();
    let bundle = ["admin", "support-bundle", "--file", named];
    let ran = broker.brokkr(&bundle).exits(0).prints("bundle.tar.gz written with ");
    ran.says("missing: audit.json: not allowed: requires the role owner")
        .says("missing: metrics: no replica");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&file).unwrap();
    assert!(before.starts_with(&[0x1f, 0x8b]), "it is compressed");
    broker.brokkr(&bundle).exits(3).says("cannot write");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let asked: Vec<String> = broker.asked().into_iter().map(|asked| asked.line).collect();
    assert!(asked.iter().all(|line| line.starts_with("GET ")), "it only reads: {asked:?}");
    assert!(asked.iter().any(|line| line.contains("/api/v1/events?limit=500")), "{asked:?}");
    assert!(asked.iter().any(|line| line.contains("/api/v1/audit?limit=200")), "{asked:?}");
}

#[test]
fn a_support_bundle_can_go_to_stdout() {
    let home = FakeBroker::start();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_brokkr"))
        .args(["admin", "support-bundle", "--file", "-"])
        .env_clear()
        .env("HOME", home.home.path())
        .env("BROKKR_SERVER", "http://127.0.0.1:9")
        .env("BROKKR_TOKEN", "brk_x")
        .output()
        .unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(output.stdout.as_slice()));
    let first = archive.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(first.path().unwrap().to_str().unwrap(), "brokkr-support/README.txt");
    assert!(output.status.success());
}

#[test]
fn a_support_bundle_is_created_without_a_broker() {
    let home = FakeBroker::start();
    let nowhere = [("BROKKR_SERVER", "http://127.0.0.1:9"), ("BROKKR_TOKEN", "brk_x")];
    let file = home.home.path().join("bundle.tar.gz");
    let bundle = ["admin", "support-bundle", "--file", file.to_str().unwrap(), "-o", "json"];
    let document = home.run(&bundle, &nowhere, "").exits(0).json();
    let files: Vec<&str> =
        document["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(files, ["README.txt", "preflight.json", "versions.json", "context.json", "missing.json"]);
    assert_eq!(document["missing"][0]["why"], "skipped: the broker is not reachable, or refuses the token");
}

//! `brokkr rollback`, barred content, and approvals of prunes.

use brokkr_api::ErrorCode;
use serde_json::json;

use crate::fake_broker::FakeBroker;
use crate::sample::{SHA, STATUS, TIME, bar, object, page, row, stack};

const ROLL_BACK: &str = "POST /api/v1/stacks/web/roll-back";
const HISTORY: &str = "GET /api/v1/stacks/web/deployment-objects";
const BARS: &str = "GET /api/v1/stacks/web/barred-contents";
const BAD: &str = "bad0000000000000000000000000000000000000000000000000000000000000";

fn broker() -> FakeBroker {
    let mut bad = object(42);
    bad["checksum"] = BAD.into();
    FakeBroker::start().on(ROLL_BACK, 201, object(43)).on(HISTORY, 200, page(&[object(43), bad, object(41)]))
}

#[test]
fn it_shows_both_versions_and_the_barred_content() {
    let broker = broker();
    let ran = broker.brokkr(&["rollback", "web", "--reason", "crash loop"]).exits(0);
    ran.prints("stack web: rolled back to 41, submitted as version 43 (1 resource, sha256 9f2c00000000)\n")
        .prints("42 (sha256 bad000000000) is barred: it is refused until `brokkr stack unbar web 42`\n");
    let asked = &broker.asked()[0];
    assert_eq!(asked.body, br#"{"keep_open":false,"reason":"crash loop"}"#);
    assert!(asked.headers.contains_key("idempotency-key"));
    let ran = broker.brokkr(&["rollback", "web", "41", "--no-bar", "-o", "json"]).exits(0);
    assert_eq!(ran.json()["sequence_id"], 43);
    assert_eq!(broker.posted()[1].body, br#"{"to":41,"keep_open":true,"reason":""}"#);
}

#[test]
fn it_waits_for_the_new_version() {
    let broker = broker().on(STATUS, 200, page(&[row("a", 43, 43, "healthy")]));
    broker.brokkr(&["rollback", "web", "--wait"]).exits(0).says("web is healthy on 1 agent");
}

#[test]
fn without_an_earlier_version_it_is_refused() {
    let broker = FakeBroker::start().refuses(ROLL_BACK, ErrorCode::BRK2013, "web has one version only");
    broker.brokkr(&["rollback", "web"]).exits(6).says("no version to roll back to (BRK2013)");
}

#[test]
fn content_is_unbarred_by_the_sequence_id_that_was_rolled_back() {
    let lift = format!("DELETE /api/v1/stacks/web/barred-contents/{SHA}");
    let broker = FakeBroker::start().on(BARS, 200, page(&[bar(42)])).on(&lift, 204, json!(null));
    broker.brokkr(&["stack", "barred", "web"]).exits(0).prints("9f2c00000000   42").prints("crash loop");
    broker
        .brokkr(&["stack", "unbar", "web", "42"])
        .exits(0)
        .prints("the content of 42 (sha256 9f2c00000000) can be");
    assert!(broker.asked().iter().any(|asked| asked.line == lift));
    broker.brokkr(&["stack", "unbar", "web", "41"]).exits(5).says("next: brokkr stack barred web");
}

#[test]
fn barred_content_is_refused_with_the_command_to_unbar_it() {
    let broker = FakeBroker::start().on("PUT /api/v1/stacks/web", 200, stack(&["env=dev"])).refuses(
        "POST /api/v1/stacks/web/deployment-objects",
        ErrorCode::BRK2011,
        "barred by ana: crash loop",
    );
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\n";
    let ran = broker.run(&["apply", "web", "-f", "-"], &environment, manifest).exits(6);
    ran.says("barred by ana: crash loop").says("brokkr stack unbar web");
}

#[test]
fn a_prune_is_approved_only_with_its_number() {
    let approval = json!({"sequence_id": 42, "objects": 120, "agent_id": null, "approved_by": "ana", "approved_at": TIME});
    let mut newest = stack(&["env=dev"]);
    newest["sequence_id"] = 42.into();
    let mut held = row("eu-1", 42, 42, "blocked");
    held["conditions"] = json!([{"kind": "PrunePending", "status": "True", "reason": "PruneNeedsApproval", "details": {"delete": 120, "total": 130}, "sequence_id": 42, "since": TIME,
        "message": "would delete 120 of 130 objects, so it waits for approval"}]);
    let broker = FakeBroker::start()
        .on("GET /api/v1/stacks/web", 200, newest.clone())
        .on("GET /api/v1/stacks/web/status", 200, page(&[held]))
        .on(
            &format!("POST /api/v1/stacks/{}/prune-approvals", newest["id"].as_str().unwrap()),
            201,
            approval.clone(),
        )
        .on("GET /api/v1/stacks/web/prune-approvals", 200, page(&[approval]));
    let ran =
        broker.brokkr(&["stack", "approve", "web"]).exits(6).says("a prune of web is pending on 1 agent");
    ran.says("eu-1: would delete 120 of 130 objects").says("--expect NUMBER");
    assert!(broker.asked().iter().all(|asked| asked.line.starts_with("GET")));
    let ran = broker.brokkr(&["stack", "approve", "web", "--expect", "120"]).exits(0);
    ran.prints("stack web: 42 may delete up to 120 objects on every agent");
    assert_eq!(broker.asked().last().unwrap().body, br#"{"sequence_id":42,"objects":120}"#);
    broker
        .brokkr(&["stack", "approve", "web", "--list"])
        .exits(0)
        .prints("42         120       every agent   ana");
}

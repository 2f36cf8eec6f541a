//! `brokkr why` and `brokkr errors`.

use serde_json::json;

use crate::fake_broker::FakeBroker;
use crate::sample::{STACK_ID, page, row, why};

const STATUS: &str = "GET /api/v1/stacks/web/status";

#[test]
fn the_chain_shows_the_step_that_is_not_complete_and_the_next_action() {
    let broker = FakeBroker::start().on("GET /api/v1/stacks/web/agents/eu-1/why", 200, why("eu-1"));
    let ran = broker.brokkr(&["why", "web", "--agent", "eu-1"]).exits(0);
    let ran = ran
        .prints("web on eu-1: failed at version 42\n")
        .prints("✖ applied    FieldImmutable: spec.selector\n");
    ran.prints("Deployment shop/web: spec.selector: field is immutable\nnext: correct it\n");
    let ran = broker.brokkr(&["why", "stack/web", "-a", "agent/eu-1", "-o", "json"]).exits(0);
    assert_eq!(ran.json()["broken"]["hop"], "applied");
}

#[test]
fn without_an_agent_those_that_are_not_in_sync_are_found() {
    let stuck = format!("GET /api/v1/stacks/web/agents/{STACK_ID}/why");
    let broker = FakeBroker::start()
        .on(STATUS, 200, page(&[row("a", 42, 42, "healthy"), row("eu-1", 42, 42, "failed")]))
        .on(&stuck, 200, why("eu-1"));
    broker.brokkr(&["why", "web"]).exits(0).prints("web on eu-1: failed at version 42");
    let ran = broker.brokkr(&["why", "web", "-o", "json"]).exits(0);
    assert_eq!(ran.json()["items"].as_array().unwrap().len(), 1);

    let both = FakeBroker::start()
        .on(STATUS, 200, page(&[row("a", 42, 42, "failed"), row("eu-1", 42, 42, "failed")]))
        .on(&stuck, 200, why("eu-1"));
    both.brokkr(&["why", "web"]).exits(0).prints("STOPPED AT").says("brokkr errors web");

    let in_sync = FakeBroker::start().on(STATUS, 200, page(&[row("a", 42, 42, "healthy")]));
    in_sync.brokkr(&["why", "web"]).exits(0).prints_exactly("web is in sync on 1 agent\n");
    let untargeted = FakeBroker::start().on(STATUS, 200, page(&[]));
    untargeted.brokkr(&["why", "web"]).exits(0).prints("web targets no agents");
}

#[test]
fn an_agent_is_explained() {
    let silent = json!({"agent_id": STACK_ID, "agent_name": "eu-1", "status": "ACTIVE", "presence": "silent",
        "last_seen_at": null, "events": [], "evidence": [], "stacks": [], "affected_stacks": 3,
        "broken": {"hop": "fetched", "cause": "agent_silent", "message": "it is silent", "next": "look at it"}});
    let broker = FakeBroker::start().on("GET /api/v1/agents/eu-1/why", 200, silent);
    let ran =
        broker.brokkr(&["why", "agent/eu-1"]).exits(0).prints("agent eu-1: ACTIVE, silent, never seen\n");
    ran.prints("next: look at it\n").prints("all of its 3 stacks are in sync\n");
}

#[test]
fn a_selector_is_previewed() {
    let preview = json!({"agents": 2, "stack": {"gained": 1, "kept": 1, "lost": 3}, "next": null,
        "items": [{"id": STACK_ID, "name": "eu-1"}, {"id": STACK_ID, "name": "us-1"}]});
    let broker = FakeBroker::start().on("GET /api/v1/selectors/preview", 200, preview);
    let ran = broker.brokkr(&["agent", "preview", "env=prod", "web"]).exits(0);
    ran.prints_exactly("2 agents\n1 gained, 1 kept, 3 lost\n  eu-1\n  us-1\n");
    assert!(broker.asked()[0].line.ends_with("?selector=env%3Dprod&stack=web&limit=20"));
    broker
        .brokkr(&["agent", "preview", "*", "-o", "name"])
        .exits(0)
        .prints_exactly("agent/eu-1\nagent/us-1\n");
    broker.brokkr(&["agent", "preview", ""]).exits(2).says("an empty selector would match every agent");
}

#[test]
fn errors_are_grouped() {
    let group = json!({"reason": "FieldImmutable", "message": "Deployment …: immutable", "count": 37, "stacks": 2,
        "sequence_id": 42, "examples": []});
    let broker = FakeBroker::start().on("GET /api/v1/errors", 200, page(&[group])).on(
        "GET /api/v1/stacks/web/errors",
        200,
        page(&[]),
    );
    broker.brokkr(&["errors"]).exits(0).prints("37      FieldImmutable   2");
    broker.brokkr(&["errors", "web"]).exits(0).prints("no errors reported");
}

//! Projects, tokens, grants, webhooks, the audit log, and the keys of agents.

use brokkr_api::ErrorCode;
use serde_json::{Value, json};

use crate::fake_broker::FakeBroker;
use crate::sample::{SHA, STACK_ID, TIME, agent, page};

fn project() -> Value {
    let quotas = json!({"stacks": 100, "submissions_per_hour": 600, "stored_bytes": 1_048_576, "tokens": 10, "webhooks": 5});
    json!({"name": "shop", "created_at": TIME, "restricted": true, "allowed": quotas, "used": quotas})
}

fn token(id: &str, name: &str, revoked: Value) -> Value {
    json!({"id": id, "project": "shop", "name": name, "role": "deployer", "created_by": "ana", "created_at": TIME,
        "expires_at": null, "revoked_at": revoked})
}

fn webhook(enabled: bool) -> Value {
    json!({"id": STACK_ID, "project": "shop", "name": "ops", "url": "https://hooks.example.com/…", "format": "standard", "filter": {},
        "enabled": enabled, "created_at": TIME})
}

#[test]
fn a_project_is_created_once_and_its_quotas_changed_later() {
    let broker = FakeBroker::start()
        .refuses("GET /api/v1/projects/shop", ErrorCode::BRK2001, "there is no such project")
        .on("GET /api/v1/projects/shop", 200, project())
        .on("PUT /api/v1/projects/shop", 201, project())
        .on("GET /api/v1/projects", 200, page(&[project()]))
        .on("DELETE /api/v1/projects/shop", 204, json!(null));
    let ran = broker
        .brokkr(&["project", "create", "shop", "--stacks", "100"])
        .exits(0)
        .prints("project shop is created");
    ran.says("next: brokkr token create");
    assert_eq!(broker.asked()[1].body, br#"{"allowed":{"stacks":100}}"#);
    broker.brokkr(&["project", "create", "shop"]).exits(6).says("the project shop already exists");
    broker.brokkr(&["project", "set", "shop"]).exits(2).says("no change was given");
    broker.brokkr(&["project", "set", "shop", "--tokens", "10"]).exits(0).prints("tokens:       10 of 10");
    broker.brokkr(&["project", "list"]).exits(0).prints("shop      100/100   10/10");
    broker.brokkr(&["project", "list", "-o", "name"]).exits(0).prints_exactly("project/shop\n");
    broker.brokkr(&["project", "delete", "shop"]).exits(2).says("use --yes in scripts");
    broker.brokkr(&["project", "delete", "shop", "--yes"]).exits(0).prints("project shop is deleted");
}

#[test]
fn a_token_is_printed_alone_and_revoked_by_name() {
    let one = "0190b5a4-0000-7000-8000-000000000001";
    let two = "0190b5a4-0000-7000-8000-000000000002";
    let mut made = token(one, "ci-web", json!(null));
    made["token"] = "brk_secret".into();
    let revoke = format!("DELETE /api/v1/api-tokens/{one}");
    let broker = FakeBroker::start()
        .on("POST /api/v1/api-tokens", 201, made)
        .on(
            "GET /api/v1/api-tokens",
            200,
            page(&[
                token(one, "ci-web", json!(null)),
                token(two, "ci-web", json!(TIME)),
                token(two, "twin", json!(null)),
                token(one, "twin", json!(null)),
            ]),
        )
        .on(&revoke, 204, json!(null));
    let ran = broker.brokkr(&["token", "create", "ci-web", "--role", "deployer", "--ttl", "30d"]).exits(0);
    ran.prints_exactly("brk_secret\n").says("the token is not shown again");
    assert_eq!(broker.asked()[0].body, br#"{"name":"ci-web","role":"deployer","ttl_seconds":2592000}"#);
    let ran = broker.brokkr(&["token", "list"]).exits(0).prints("ci-web   deployer   revoked");
    assert!(!ran.stdout.contains("brk_"));
    broker.brokkr(&["token", "revoke", "ci-web"]).exits(2).says("use --yes in scripts");
    broker.brokkr(&["token", "revoke", "ci-web", "--yes"]).exits(0).prints("is revoked");
    assert_eq!(broker.asked().last().unwrap().line, revoke, "the valid one");
    broker
        .brokkr(&["token", "revoke", "twin", "-y"])
        .exits(6)
        .says("2 valid tokens have the name twin")
        .says(two);
    broker.brokkr(&["token", "show", "nobody"]).exits(5).says("there is no valid token nobody");
    broker.brokkr(&["token", "create", "x", "--role", "king"]).exits(2).says("deployer");
}

#[test]
fn a_token_is_rotated_and_the_new_one_printed_alone() {
    let one = "0190b5a4-0000-7000-8000-000000000001";
    let two = "0190b5a4-0000-7000-8000-000000000002";
    let mut made = token(two, "ci-web", json!(null));
    made["token"] = "brk_new".into();
    made["replaces"] = token(one, "ci-web", json!(null));
    made["replaces"]["expires_at"] = "2026-03-02T12:00:00Z".into();
    let rotate = format!("POST /api/v1/api-tokens/{one}/rotate");
    let broker = FakeBroker::start()
        .on("GET /api/v1/api-tokens", 200, page(&[token(one, "ci-web", json!(null))]))
        .on(&rotate, 201, made);
    broker
        .brokkr(&["token", "rotate", "ci-web"])
        .exits(0)
        .prints_exactly("brk_new\n")
        .says("deployer in project shop; the token is not shown again")
        .says(&format!("the old token ({one}) is valid until 2026-03-02T12:00:00Z"));
    assert_eq!(broker.asked()[1].body, br#"{"overlap_seconds":86400}"#);
    assert!(
        broker.asked()[1].headers.contains_key("idempotency-key"),
        "a lost response does not lose the token"
    );
    let short = ["token", "rotate", "ci-web", "--overlap", "0s", "--ttl", "1h", "-o", "name"];
    broker.brokkr(&short).exits(0).prints_exactly(&format!("token/{two}\n"));
    assert_eq!(broker.asked()[3].body, br#"{"overlap_seconds":0,"ttl_seconds":3600}"#);
    broker.brokkr(&["token", "rotate", "nobody"]).exits(5).says("there is no valid token nobody");
}

#[test]
fn a_grant_is_checked_before_it_is_sent() {
    let grant = json!({"id": STACK_ID, "name": "shop-prod", "project": "shop", "selector": "env=prod", "namespaces": ["shop"],
        "kinds": ["*"], "account": "shop/brokkr-shop", "created_by": "ana", "created_at": TIME, "updated_at": TIME});
    let broker = FakeBroker::start()
        .on("PUT /api/v1/grants/shop-prod", 201, grant.clone())
        .on("GET /api/v1/grants", 200, page(std::slice::from_ref(&grant)))
        .on("GET /api/v1/grants/shop-prod", 200, grant)
        .refuses("DELETE /api/v1/grants/shop-prod", ErrorCode::BRK2009, "12 stacks on agents lose it");
    let set =
        ["grant", "set", "shop-prod", "--to-project", "shop", "-l", "env=prod", "-n", "shop", "--kind", "*"];
    broker.brokkr(&[&set, ["--account", "shop/deployer"].as_slice()].concat()).exits(2).says("brokkr-NAME");
    assert!(broker.asked().is_empty());
    let good = [&set, ["--account", "shop/brokkr-shop", "--expect", "3"].as_slice()].concat();
    broker.brokkr(&good).exits(0).prints("grant shop-prod: project shop may use agents with env=prod");
    assert!(broker.asked()[0].line.ends_with("/grants/shop-prod?expect=3"));
    broker.brokkr(&["grant", "list"]).exits(0).prints("shop-prod   shop      env=prod");
    broker.brokkr(&["grant", "show", "shop-prod"]).exits(0).prints("account:     shop/brokkr-shop");
    broker
        .brokkr(&["grant", "delete", "shop-prod", "--yes"])
        .exits(6)
        .says("12 stacks on agents lose it")
        .says("--expect");
    let empty_selector = broker.brokkr(&[
        "grant",
        "set",
        "x",
        "--to-project",
        "shop",
        "-l",
        "",
        "-n",
        "*",
        "--kind",
        "*",
        "--account",
        "a/b",
    ]);
    empty_selector.exits(2).says("an empty selector would match every agent");
}

#[test]
fn a_webhook_secret_is_printed_alone_and_the_url_can_come_from_stdin() {
    let mut made = webhook(true);
    made["secret"] = "whsec_x".into();
    let attempt = |delivered: bool| json!({"delivered": delivered, "status": if delivered { 200 } else { 503 }, "millis": 31, "answer": ""});
    let resend = format!("POST /api/v1/webhooks/ops/deliveries/{STACK_ID}/resend");
    let broker = FakeBroker::start()
        .on("POST /api/v1/webhooks", 201, made.clone())
        .on("GET /api/v1/webhooks", 200, page(&[webhook(true)]))
        .on("PATCH /api/v1/webhooks/ops", 200, webhook(false))
        .on("POST /api/v1/webhooks/ops/rotate-secret", 200, made)
        .on("POST /api/v1/webhooks/ops/test", 200, attempt(true))
        .on("POST /api/v1/webhooks/ops/test", 200, attempt(false))
        .on(&resend, 204, json!(null));
    let environment = [("BROKKR_SERVER", broker.url.as_str()), ("BROKKR_TOKEN", "brk_x")];
    let create = ["webhook", "create", "ops", "--url", "-", "--event", "alert.opened", "-l", "env=prod"];
    broker
        .run(&create, &environment, "https://hooks.example.com/secret\n")
        .exits(0)
        .prints_exactly("whsec_x\n");
    let body = String::from_utf8(broker.asked()[0].body.clone()).unwrap();
    assert!(body.contains("https://hooks.example.com/secret\"") && body.contains("alert.opened"), "{body}");
    broker.brokkr(&["webhook", "list"]).exits(0).prints("ops       enabled");
    broker.brokkr(&["webhook", "disable", "ops"]).exits(0).prints("webhook ops is disabled");
    broker.brokkr(&["webhook", "set", "ops"]).exits(2).says("no change was given");
    broker
        .brokkr(&["webhook", "rotate-secret", "ops", "--overlap", "2h"])
        .exits(0)
        .prints_exactly("whsec_x\n");
    assert_eq!(broker.asked().last().unwrap().body, br#"{"overlap_seconds":7200}"#);
    broker.brokkr(&["webhook", "test", "ops"]).exits(0).prints("webhook ops: delivered, 200 in 31 ms");
    broker.brokkr(&["webhook", "test", "ops"]).exits(1).prints("webhook ops: not delivered");
    broker.brokkr(&["webhook", "resend", "ops", STACK_ID]).exits(0);
    broker
        .brokkr(&["webhook", "create", "x", "--url", "-", "--event", "nonsense"])
        .exits(2)
        .says("alert.opened");
}

#[test]
fn the_audit_chain_is_verified_to_its_end() {
    let head = |number: i64| json!({"project": "shop", "number": number, "hash": SHA});
    let part = |links: i64, next: Value, broken: Value| json!({"project": "shop", "links": links, "last": head(links), "broken": broken, "next": next});
    let verify = "GET /api/v1/audit/verify";
    let good = FakeBroker::start()
        .on(verify, 200, part(10_000, json!(10_000), json!(null)))
        .on(verify, 200, part(5, json!(null), json!(null)))
        .on("GET /api/v1/audit/head", 200, head(10_005));
    good.brokkr(&["audit", "verify"])
        .exits(0)
        .prints("the audit chain of shop is valid: 10005 valid entries");
    assert!(good.asked()[1].line.ends_with("?after=10000"));
    good.brokkr(&["audit", "head"]).exits(0).prints_exactly(&format!("10005:{SHA}\n"));
    let broken = json!({"number": 7, "audit_id": 70, "why": "its entry was changed"});
    let bad = FakeBroker::start().on(verify, 200, part(6, json!(null), broken));
    bad.brokkr(&["audit", "verify"]).exits(1).prints("is invalid at entry 7: its entry was changed");
}

#[test]
fn the_audit_log_is_filtered_by_actor_kind_and_time() {
    let entry = json!({"id": 7, "at": TIME, "project": "shop", "kind": "change", "principal": "token:x", "name": "ci-web",
        "method": "POST", "route": "/api/v1/stacks/{stack}", "path": "/api/v1/stacks/web", "address": "192.0.2.7",
        "status": 201, "request_id": "r", "count": 1, "before": null, "after": null});
    let broker = FakeBroker::start().on("GET /api/v1/audit", 200, page(&[entry]));
    broker
        .brokkr(&["audit", "list", "--actor", "ci-web", "--kind", "change", "--since", TIME])
        .exits(0)
        .prints("ci-web   POST");
    let line = &broker.asked()[0].line;
    assert!(line.contains("who=ci-web&kind=change&since=2026-03-01T12%3A00%3A00Z&limit=50"), "{line}");
    broker.brokkr(&["audit", "list", "--since", "2h"]).exits(0);
    broker.brokkr(&["audit", "list", "--since", "yesterday"]).exits(2).says("duration before now such as 2h");
}

#[test]
fn an_agent_is_paused_resumed_revoked_and_rejoined() {
    let mut paused = agent("eu-1");
    paused["status"] = "INACTIVE".into();
    let join = json!({"id": STACK_ID, "token": "brj_secret", "agent_name": "eu-1", "labels": {}, "expires_at": TIME});
    let broker = FakeBroker::start()
        .on("GET /api/v1/agents/eu-1", 200, agent("eu-1"))
        .on("PATCH /api/v1/agents/eu-1", 200, paused)
        .on("PATCH /api/v1/agents/eu-1", 200, agent("eu-1"))
        .on(&format!("DELETE /api/v1/agents/{STACK_ID}/keys"), 200, agent("eu-1"))
        .on("POST /api/v1/agents/eu-1/join-tokens", 201, join)
        .on(&format!("DELETE /api/v1/join-tokens/{STACK_ID}"), 204, json!(null));
    broker.brokkr(&["agent", "pause", "eu-1"]).exits(0).prints_exactly("agent eu-1 is INACTIVE\n");
    assert_eq!(broker.asked()[0].body, br#"{"status":"INACTIVE"}"#);
    broker.brokkr(&["agent", "resume", "agent/eu-1"]).exits(0).prints_exactly("agent eu-1 is ACTIVE\n");
    broker.brokkr(&["agent", "show", "eu-1"]).exits(0).prints("labels:    env=dev");
    broker.brokkr(&["agent", "show", "eu-1", "-o", "name"]).exits(0).prints_exactly("agent/eu-1\n");
    broker.brokkr(&["agent", "revoke", "eu-1"]).exits(2).says("use --yes in scripts");
    broker.brokkr(&["agent", "revoke", "eu-1", "--yes"]).exits(0).prints("all keys are revoked");
    broker.brokkr(&["agent", "rejoin", "eu-1"]).exits(0).prints_exactly("brj_secret\n");
    broker.brokkr(&["agent", "revoke-join-token", STACK_ID]).exits(0).prints("is revoked");
}

#[test]
fn an_agent_is_joined_with_a_token_from_stdin() {
    let join = json!({"id": STACK_ID, "token": "brj_secret", "agent_name": "eu-1", "labels": {}, "expires_at": TIME});
    let broker = FakeBroker::start().on("POST /api/v1/join-tokens", 201, join);
    let joined = ["agent", "join", "eu-1", "--print", "--token-file", "-"];
    broker
        .run(&joined, &[("BROKKR_SERVER", &broker.url)], "brk_from-stdin\n")
        .exits(0)
        .prints(r#"token: "brj_secret""#)
        .prints("kind: Deployment");
}

#[test]
fn a_deleted_stack_is_purged_with_a_reason() {
    let purged = json!({"stack_id": STACK_ID, "stack_name": "web", "versions": 3});
    let broker = FakeBroker::start().on("POST /api/v1/stacks/web/purge", 200, purged);
    broker.brokkr(&["admin", "purge", "web", "--yes"]).exits(2).says("--reason");
    broker.brokkr(&["admin", "purge", "web", "--reason", "law"]).exits(2).says("use --yes in scripts");
    broker
        .brokkr(&["admin", "purge", "web", "--reason", "law", "--yes"])
        .exits(0)
        .prints("the content of 3 versions is deleted");
    assert_eq!(broker.asked()[0].body, br#"{"reason":"law"}"#);
}

#[test]
fn an_agent_that_has_left_is_deleted_by_its_id() {
    let delete = format!("DELETE /api/v1/agents/{STACK_ID}");
    let broker = FakeBroker::start()
        .on("GET /api/v1/agents/shop-1", 200, agent("shop-1"))
        .refuses(&delete, ErrorCode::BRK2022, "its keys are not revoked")
        .on(&delete, 204, json!(null));
    broker.brokkr(&["agent", "delete", "shop-1"]).exits(2).says("use --yes in scripts");
    broker.brokkr(&["agent", "delete", "shop-1", "--yes"]).exits(6).says("its keys are not revoked");
    broker.brokkr(&["agent", "delete", "shop-1", "--yes"]).exits(0).prints("agent shop-1 is deleted");
}

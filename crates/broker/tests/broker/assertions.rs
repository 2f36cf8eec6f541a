//! Captured assertions: one for reading cannot write, and one for writing is good for exactly its request.

use anyhow::{Context as _, Result};
use brokkr_api::assertion::WRITE_ASSERTION_SECONDS;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::report::Transition;
use brokkr_api::{ErrorCode, Problem, StackId};
use brokkr_broker::access::Permission;
use brokkr_broker::router;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Caller, Harness, Key, YAML, bound};

/// Returns the detail of a refusal because the assertion is not for this request.
async fn not_for_this_request(response: Response) -> Result<String> {
    let status = response.status();
    let problem: Problem = response.json().await?;
    assert_eq!((status, problem.code), (StatusCode::UNAUTHORIZED, ErrorCode::BRK1010), "{problem}");
    Ok(problem.detail)
}

/// Someone who has this assertion of an agent and no key.
fn thief(harness: &Harness, assertion: String) -> Caller {
    Caller::new(harness.server.address, Some(assertion))
}

/// Every write of an agent, with a valid body for a stack that targets it.
fn writes(agent: &Agent, stack: StackId) -> Result<Vec<(Method, String, Value)>> {
    let session = json!({ "count": 2, "instance": agent.session.instance });
    let report = agent.report(stack, brokkr_api::SequenceId(1), Transition::Applied, 1_800_000_000);
    Ok(vec![
        (Method::POST, agent.path("session"), session),
        (Method::PUT, agent.path("holds"), json!({ "stacks": [stack] })),
        (Method::POST, agent.path("reports"), json!({ "reports": [report] })),
        (Method::POST, agent.path("keys"), json!(agent.signer().key_change(&Key::generate()?)?)),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_assertion_for_reading_writes_nothing() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    harness.submit("web", YAML).await?;
    let captured = thief(&harness, agent.key.sign(&agent.claims())?);
    let before: Value = harness.admin.get_json("agents/shop-1").await?;
    // Verified and cached, as by a poll.
    assert!(captured.get(&agent.path("targets")).await?.status().is_success());
    for (method, path, body) in writes(&agent, stack.id)? {
        let request = captured.request(method, &path).json(&body);
        let detail = not_for_this_request(request.send().await?).await.context(path)?;
        assert_eq!(detail, "the assertion is for reading; this request needs an assertion that names it");
    }
    let after: Value = harness.admin.get_json("agents/shop-1").await?;
    for field in ["session_count", "key_since", "version"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(agent.poll().await?.status, StatusCode::OK, "it holds what it held before");
    // The agent itself writes with assertions of its own.
    for (method, path, body) in writes(&agent, stack.id)? {
        let response = agent.caller().send(method, &path, &body).await?;
        assert!(response.status().is_success(), "{path}: {}", response.text().await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assertion_for_writing_is_for_exactly_one_request_of_one_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let (agent, other) =
        (harness.agent("shop-1", json!({})).await?, harness.agent("shop-2", json!({})).await?);
    let session = agent.session.to_string();
    let request = |caller: &Caller, method: Method, path: &str, key: &str, session: &str, body: &str| {
        let request = caller.request(method, path).header("content-type", "application/json");
        let request = request.header(header::IDEMPOTENCY_KEY, key.to_owned());
        request.header(header::SESSION, session.to_owned()).body(body.to_owned())
    };
    let (path, body) = (agent.path("holds"), r#"{"stacks":[]}"#);
    let signed = request(&agent.caller(), Method::PUT, &path, "k-1", &session, body).build()?;
    let captured = thief(&harness, agent.signer().write_assertion(bound(&signed))?);
    let newer = format!("2.{}", agent.session.instance);
    let with_query = format!("{path}?x=1");
    let tampered = [
        ("body", request(&captured, Method::PUT, &path, "k-1", &session, r#"{"stacks": []}"#)),
        ("body", request(&captured, Method::PUT, &path, "k-1", &session, "")),
        ("path or query", request(&captured, Method::PUT, &other.path("holds"), "k-1", &session, body)),
        ("path or query", request(&captured, Method::PUT, &with_query, "k-1", &session, body)),
        ("method", request(&captured, Method::POST, &agent.path("reports"), "k-1", &session, body)),
        ("method", request(&captured, Method::GET, &agent.path("targets"), "k-1", &session, "")),
        ("idempotency key", request(&captured, Method::PUT, &path, "k-2", &session, body)),
        ("session", request(&captured, Method::PUT, &path, "k-1", &newer, body)),
    ];
    for (part, request) in tampered {
        let detail = not_for_this_request(request.send().await?).await?;
        assert_eq!(detail, format!("the assertion is for another request: the {part} differs"));
        // The operator sees that someone, or a proxy, sends other requests.
        let refusal = harness.server.broker.presence.last_refusal(agent.id).context("it is recorded")?;
        assert!(refusal.because.contains("another request"), "{part}: {}", refusal.because);
        harness.server.broker.presence.refused(agent.id, "");
    }
    // Of another agent, and valid for too long.
    let mut claims = agent.signer().claims(Some(bound(&signed)));
    (claims["iss"], claims["sub"]) = (json!(other.id), json!(other.id));
    let forged = thief(&harness, agent.key.sign(&claims)?);
    let mut claims = agent.signer().claims(Some(bound(&signed)));
    claims["exp"] = json!(claims["iat"].as_i64().context("a time")? + WRITE_ASSERTION_SECONDS + 1);
    let long = thief(&harness, agent.key.sign(&claims)?);
    for caller in [forged, long] {
        let response = request(&caller, Method::PUT, &path, "k-1", &session, body).send().await?;
        assert_eq!(crate::harness::refused(response).await?, ErrorCode::BRK1001);
    }
    // The refused attempts had no effect, so the request itself is still the first one with its key.
    let exact = request(&captured, Method::PUT, &path, "k-1", &session, body).send().await?;
    assert_eq!(exact.status(), StatusCode::NO_CONTENT);
    Ok(())
}

/// Returns a signed request that can be sent again byte for byte.
fn capture(agent: &Agent, method: Method, path: &str, key: &str, body: &Value) -> Result<RequestBuilder> {
    let caller = agent.caller();
    caller.signed(caller.request(method, path).header(header::IDEMPOTENCY_KEY, key).json(body))
}

/// Replays are idempotent on every route of an agent: the idempotency key is part of the assertion, so a replay gets the
/// first result. Reports have ids of their own. Replayed rotations are in `key_proofs.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_write_of_an_agent_changes_nothing() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let report = agent.report(stack.id, object.sequence_id, Transition::Applied, 1_800_000_000);
    let session = json!({ "count": 1, "instance": agent.session.instance });
    let captured = [
        capture(&agent, Method::POST, &agent.path("session"), "k-session", &session)?,
        capture(&agent, Method::PUT, &agent.path("holds"), "k-holds", &json!({ "stacks": [] }))?,
        capture(&agent, Method::POST, &agent.path("reports"), "k-reports", &json!({ "reports": [report] }))?,
    ];
    let mut first = Vec::new();
    for request in &captured {
        let response = request.try_clone().context("it has bytes")?.send().await?;
        first.push((response.status(), response.text().await?));
    }
    // The agent moves on.
    agent.open_session(2).await?;
    agent.hold(&[stack.id]).await?;
    let events: Page<Event> = harness.admin.get_json("events").await?;

    for (request, first) in captured.iter().zip(&first) {
        let response = request.try_clone().context("it has bytes")?.send().await?;
        // Repeated reports are recognized by their ids, not by the key of the request.
        let receipt = first.1.replace(r#""accepted":["#, r#""duplicates":["#);
        let receipt = receipt.replace(r#"],"duplicates":[],"#, r#"],"accepted":[],"#);
        let (status, body) = (response.status(), response.text().await?);
        let same = serde_json::from_str::<Value>(&body).ok() == serde_json::from_str::<Value>(&receipt).ok();
        assert!(status == first.0 && same, "{status} {body} {first:?}");
    }
    let polled = agent.poll().await?;
    assert_eq!(polled.status, StatusCode::OK, "session and holds are the newer ones");
    let again: Page<Event> = harness.admin.get_json("events").await?;
    assert_eq!(again.items.len(), events.items.len());
    assert!(!again.items.is_empty());
    Ok(())
}

/// A new route for agents that does not read its body with `Change` fails here.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_an_agent_compares_the_body_with_the_assertion() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let mut checked = 0;
    for route in router::table() {
        let (method, path) = route.name.split_once(' ').context("METHOD /path")?;
        let is_for_agents = matches!(
            route.permission,
            Permission::Agent | Permission::AgentOr(_) | Permission::AnyAgentOr(_)
        );
        if !is_for_agents || method == "GET" {
            continue;
        }
        let path = path.replace("{agent}", &agent.id.to_string());
        assert!(!path.contains('{'), "{path}: fill in the parameter here");
        let method: Method = method.parse()?;
        let signed = agent.caller().request(method.clone(), &path).body("{}").build()?;
        let captured = thief(&harness, agent.signer().write_assertion(bound(&signed))?);
        let other = captured.request(method.clone(), &path).body("{ }").send().await?;
        let detail = not_for_this_request(other).await.context(route.name)?;
        assert_eq!(detail, "the assertion is for another request: the body differs", "{}", route.name);
        let exact = captured.request(method, &path).body("{}").send().await?;
        assert_ne!(exact.status(), StatusCode::UNAUTHORIZED, "{}", route.name);
        checked += 1;
    }
    assert!(checked >= 4, "{checked} routes");
    Ok(())
}

//! The database went back: the replicas hold, the epoch is raised, and what is left is settled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use brokkr_api::agents::{AgentStatus, HeldStack};
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::header;
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, Position, SequenceId, StackId};
use brokkr_testkit::process::run;
use brokkr_testkit::{Database, Launch, Look, Output, Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::house::{Agent, Caller, House, Key, Polled, YAML, polled, refused};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(30);

/// `brokkr-broker epoch …` on the database.
async fn epoch(database: &Database, arguments: &[&str]) -> Result<Output> {
    let launch = Launch::new("brokkr-broker", PROGRAM)
        .args(["epoch"])
        .args(arguments)
        .args(["--database-url", &database.url()]);
    run(launch, SOON).await?.ok()
}

/// Somebody who has seen what the database cannot know of.
fn beyond(seen: Position) -> Position {
    Position { horizon: seen.horizon + 1_000_000, ..seen }
}

async fn poll_from(agent: &Agent, address: SocketAddr, position: Position) -> Result<Polled> {
    polled(agent.poll_request_at(address).header(header::POSITION, position.to_string())).await
}

/// Polls and tells what it holds if asked, as agents do.
async fn poll_on(agent: &mut Agent, address: SocketAddr, position: Position) -> Result<Polled> {
    let answer = poll_from(agent, address, position).await?;
    if answer.status != StatusCode::PRECONDITION_REQUIRED {
        return Ok(answer);
    }
    agent.hold(&agent.holds.clone()).await?;
    poll_from(agent, address, position).await
}

async fn is_held(caller: &Caller) -> Result<bool> {
    let response = caller.send(Method::PUT, "stacks/probe", &json!({})).await?;
    if response.status().is_success() {
        return Ok(false);
    }
    Ok(refused(response).await? == ErrorCode::BRK3005)
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_an_agent_from_the_future_puts_all_replicas_on_hold_and_a_raise_ends_it() -> Result<()> {
    let house = House::open().await?;
    let replica = house.replica().await?;
    let mut agent = house.agent("shop-1", json!({})).await?;
    let stack = house.stack("web", json!({ "selectors": ["*"] })).await?;
    let before = house.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let known = agent.poll().await?;
    let seen = known.position.expect("an answer has a position");

    // While it waits for a change, another process of the same fleet brings the news.
    let future = beyond(seen);
    let answer = poll_on(&mut agent, house.server.address, future).await?;
    assert_eq!((answer.status, answer.code()?), (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::BRK3005));
    assert!(answer.headers.contains_key("retry-after"));

    // Every replica, for everybody, and after a restart.
    let other = Caller::new(replica.address, Some(crate::house::token(&house.database, Role::Admin).await?));
    eventually(SOON, "the other replica to hold", async || is_held(&other).await.unwrap_or(false)).await?;
    let third = house.replica().await?;
    for address in [house.server.address, replica.address, third.address] {
        // With what it has, and with nothing at all: nothing new is told.
        for request in [
            agent.poll_request_at(address).header("if-none-match", &known.etag),
            agent.poll_request_at(address),
            agent.poll_request_at(address).header(header::POSITION, seen.to_string()),
        ] {
            let answer = polled(request).await?;
            let code = answer.code()?;
            assert!(
                matches!(code, ErrorCode::BRK3005 | ErrorCode::BRK3001),
                "{code}: {}",
                String::from_utf8_lossy(&answer.body)
            );
            if code == ErrorCode::BRK3001 {
                agent.hold(&[stack.id]).await?;
            }
        }
    }
    // What would change what agents are told is refused and says what to do; reading and reporting work.
    for (method, path, body) in [
        (Method::PUT, "stacks/web/targets", json!({ "agents": [] })),
        (Method::PUT, "stacks/new", json!({})),
        (Method::DELETE, "stacks/web", Value::Null),
        (Method::PATCH, "agents/shop-1", json!({ "labels": {} })),
    ] {
        let response = house.admin.send(method.clone(), path, &body).await?;
        let problem: brokkr_api::Problem = response.json().await?;
        assert_eq!(problem.code, ErrorCode::BRK3005, "{method} {path}");
        assert!(problem.detail.contains("shop-1"), "{}", problem.detail);
        assert!(problem.next.contains("brokkr-broker epoch raise"), "{}", problem.next);
    }
    let submitted = house.admin.request(Method::POST, "stacks/web/deployment-objects").body(YAML).send();
    assert_eq!(refused(submitted.await?).await?, ErrorCode::BRK3005);
    assert_eq!(house.admin.get("stacks/web").await?.status(), StatusCode::OK);
    let report = agent.report(stack.id, before.sequence_id, brokkr_api::report::Transition::Healthy, 100);
    assert_eq!(agent.send_reports(&[report]).await?.status(), StatusCode::OK);

    // A dry run changes nothing.
    let shown = epoch(&house.database, &["raise", "--dry-run"]).await?;
    assert!(
        shown.stdout.contains("shop-1") && shown.stdout.contains("nothing was changed"),
        "{}",
        shown.stdout
    );
    assert!(is_held(&house.admin).await?);

    epoch(&house.database, &["raise", "--by", "a test"]).await?;
    eventually(SOON, "the hold to end", async || !is_held(&house.admin).await.unwrap_or(true)).await?;
    let answer = eventually(SOON, "the agent to be served in the new epoch", async || {
        match poll_on(&mut agent, house.server.address, future).await {
            Ok(answer) if answer.status == StatusCode::OK => Look::Yes(answer),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert!(answer.position.is_some_and(|now| now.epoch > 1_700_000_000 && now > future));
    assert_eq!(answer.envelope()?.stacks[0].sequence_id, before.sequence_id, "as restored");
    let after = house.submit("web", YAML).await?;
    assert!(after.sequence_id.0 > before.sequence_id.0 + 1_000_000, "{}", after.sequence_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_an_agent_of_this_installation_can_cause_a_hold() -> Result<()> {
    let house = House::open().await?;
    let agent = house.agent("shop-1", json!({})).await?;
    house.stack("web", json!({ "selectors": ["*"] })).await?;
    let future = beyond(agent.poll().await?.position.expect("a position"));
    let raised = Position { epoch: future.epoch + 7, horizon: 1 };
    let path = agent.path("target-state");
    let media_type = brokkr_api::protocol::ENVELOPE_MEDIA_TYPE;
    let viewer = house.with_role(Role::Viewer).await?;
    // Signed with a key that is not the agent's.
    let forged = Caller::new(house.server.address, Some(Key::generate()?.sign(&agent.claims())?));
    for position in [future, raised] {
        let ask = |caller: &Caller, path: &str| {
            caller
                .request(Method::GET, path)
                .header("accept", media_type)
                .header(header::POSITION, position.to_string())
        };
        assert_eq!(refused(ask(&house.anybody(), &path).send().await?).await?, ErrorCode::BRK1001);
        assert_eq!(refused(ask(&forged, &path).send().await?).await?, ErrorCode::BRK1001);
        assert_eq!(refused(ask(&viewer, "agents/shop-1/targets").send().await?).await?, ErrorCode::BRK3004);
        assert_eq!(refused(ask(&house.admin, &path).send().await?).await?, ErrorCode::BRK3004);
    }
    assert!(!is_held(&house.admin).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_behind_raises_no_alarm() -> Result<()> {
    // A server of its own: the transaction left open below holds back every tail of a server.
    let house = House::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = house.agent("shop-1", json!({})).await?;
    house.stack("web", json!({ "selectors": ["*"] })).await?;
    let mut open = house.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut open).await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut open).await?;
    let response = house.admin.send(Method::PUT, "stacks/web", &json!({ "labels": { "a": "b" } })).await?;
    let seen = crate::house::position(&response).expect("a write has a position");
    let answer = poll_from(&agent, house.server.address, seen).await?;
    assert_eq!(answer.code()?, ErrorCode::BRK3002);
    assert!(!is_held(&house.admin).await?);
    // Though the replica believed it: the database itself is asked, and knows better.
    let hold = brokkr_broker::store::installation::installation_hold(
        &house.server.broker.pool,
        seen,
        "a replica that was paused",
    );
    assert_eq!(hold.await?, None);
    sqlx::query("COMMIT").execute(&mut open).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_replica_notices_that_its_database_has_gone_back() -> Result<()> {
    let house = House::open().await?;
    assert!(!is_held(&house.admin).await?);
    // As far as a replica can tell, an epoch that sinks is a restore to before it was raised.
    epoch(&house.database, &["raise"]).await?;
    eventually(SOON, "the epoch to be seen", async || house.server.broker.index.position().epoch > 1).await?;
    house.server.broker.standing.look(&house.server.broker.pool).await?;
    let mut connection = house.database.connect().await?;
    sqlx::query("UPDATE installation SET epoch = 1").execute(&mut connection).await?;
    eventually(SOON, "the replica to hold", async || is_held(&house.admin).await.unwrap_or(false)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_what_an_agent_holds_is_kept_though_its_target_was_lost() -> Result<()> {
    let house = House::open().await?;
    let mut agent = house.agent("shop-1", json!({ "env": "prod" })).await?;
    let lost = house.stack("lost", json!({ "agents": [] })).await?;
    let gone = house.stack("gone", json!({ "selectors": ["*"] })).await?;
    house.submit("lost", YAML).await?;
    house.submit("gone", YAML).await?;
    house.delete("gone").await?;
    // As after a restore: the agent got its targets in the time that was lost.
    agent.hold(&[lost.id, gone.id]).await?;
    epoch(&house.database, &["raise"]).await?;
    let answer = eventually(SOON, "an answer of the new epoch", async || {
        match poll_on(&mut agent, house.server.address, Position { epoch: 2, horizon: 0 }).await {
            Ok(answer) if answer.status == StatusCode::OK => Look::Yes(answer),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    let envelope = answer.envelope()?;
    assert_eq!(envelope.status, AgentStatus::Active);
    let told: Vec<_> = envelope.stacks.iter().map(|stack| (stack.stack_id, stack.removal)).collect();
    let deleted = Some(brokkr_api::envelope::Removal::Deleted);
    assert_eq!(
        told,
        [(lost.id, None), (gone.id, deleted)],
        "kept, but what was deleted before stays deleted"
    );

    // An ordinary change takes it away again: only the restore is no reason.
    house.target("lost", json!({ "agents": [] })).await?;
    let envelope = agent.poll().await?.envelope()?;
    let removal =
        envelope.stacks.iter().find(|stack| stack.stack_id == lost.id).and_then(|stack| stack.removal);
    assert_eq!(removal, Some(brokkr_api::envelope::Removal::Untargeted));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_ids_go_on_above_what_any_agent_knows_of() -> Result<()> {
    let house = House::open().await?;
    let agent = house.agent("shop-1", json!({})).await?;
    house.stack("web", json!({})).await?;
    house.submit("web", YAML).await?;
    let held = |sequence: i64| HeldStack {
        stack_id: StackId::generate(),
        project: "default".into(),
        stack_name: "lost".into(),
        sequence_id: SequenceId(sequence),
        checksum: Some(Checksum::of(b"lost")),
        removing: false,
    };
    let held = [held(5_000_000), held(i64::MAX - 1)];
    let stacks: Vec<StackId> = held.iter().map(|held| held.stack_id).collect();
    let told = json!({ "stacks": stacks, "held": held });
    let response = agent.caller().send(Method::PUT, &agent.path("holds"), &told).await?;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let shown = epoch(&house.database, &["raise"]).await?.stdout;
    let object = house.submit("web", YAML).await?;
    assert!(object.sequence_id.0 < 10_000_000, "one agent cannot use the ids up: {}", object.sequence_id);
    assert!(shown.contains("not believed: the agent shop-1"), "{shown}");
    Ok(())
}

//! After a restore: the replicas are on hold, the epoch is raised, and stacks are settled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_api::agents::{AgentStatus, HeldStack, Target, Why};
use brokkr_api::audit::AuditEntry;
use brokkr_api::envelope::{Envelope, Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::stacks::Stack;
use brokkr_api::system::{HoldCause, Holder, Settled, System, UnsettledStack, Witness};
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, HistoryMark, Position, PositionToken, SequenceId, StackId};
use brokkr_testkit::process::run;
use brokkr_testkit::{Attempt, Database, Launch, Output, Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Agent, Caller, Harness, Key, Polled, YAML, polled, read, refused};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(30);

/// `brokkr-broker epoch …` on the database.
pub async fn epoch(database: &Database, arguments: &[&str]) -> Result<Output> {
    let launch = Launch::new("brokkr-broker", PROGRAM)
        .args(["epoch"])
        .args(arguments)
        .args(["--database-url", &database.url()]);
    run(launch, SOON).await?.ok()
}

/// A position that the database has not reached.
pub fn beyond(seen: PositionToken) -> Position {
    Position { horizon: seen.position.horizon + 1_000_000, ..seen.position }
}

/// A position that the installation issued. After a restore, the database may not have reached it.
pub fn issued(harness: &Harness, position: Position) -> PositionToken {
    harness.server.broker.access.positions.issue((position, HistoryMark::default()))
}

async fn poll_from(agent: &Agent, address: SocketAddr, position: PositionToken) -> Result<Polled> {
    polled(agent.poll_request_at(address).header(header::POSITION, position.to_string())).await
}

/// Polls, and reports what it holds if asked, as agents do.
async fn poll_on(agent: &mut Agent, address: SocketAddr, position: PositionToken) -> Result<Polled> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = poll_from(agent, address, position).await?;
        match answer.status {
            StatusCode::PRECONDITION_REQUIRED if Instant::now() < until => {
                agent.have(&agent.holds.clone()).await?;
            }
            // A replica that has not read the raise or the report yet says so, and agents poll again.
            StatusCode::SERVICE_UNAVAILABLE
                if answer.code()? == ErrorCode::BRK3002 && Instant::now() < until => {}
            _ => return Ok(answer),
        }
    }
}

pub async fn is_held(caller: &Caller) -> Result<bool> {
    let response = caller.send(Method::PUT, "stacks/probe", &json!({})).await?;
    if response.status().is_success() {
        return Ok(false);
    }
    Ok(refused(response).await? == ErrorCode::BRK3005)
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_an_agent_with_a_higher_position_puts_all_replicas_on_hold_and_a_raise_ends_it() -> Result<()> {
    let harness = Harness::open().await?;
    let replica = harness.replica().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let before = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let known = agent.poll().await?;
    let seen = known.position.expect("an answer has a position");

    // The broker issued this position before the database was restored.
    let future = issued(&harness, beyond(seen));
    let answer = poll_on(&mut agent, harness.server.address, future).await?;
    assert_eq!((answer.status, answer.code()?), (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::BRK3005));
    assert!(answer.headers.contains_key("retry-after"));

    // All replicas are on hold, for all callers, and after a restart.
    let other =
        Caller::new(replica.address, Some(crate::harness::token(&harness.database, Role::Admin).await?));
    eventually(SOON, "the other replica to hold", async || is_held(&other).await.unwrap_or(false)).await?;
    let third = harness.replica().await?;
    for address in [harness.server.address, replica.address, third.address] {
        // Whether or not the request names the current envelope, the agent gets nothing new.
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
                agent.have(&[stack.id]).await?;
            }
        }
    }
    // Changes of target states are refused with the next step; reads and reports work.
    for (method, path, body) in [
        (Method::PUT, "stacks/web/targets", json!({ "agents": [] })),
        (Method::PUT, "stacks/new", json!({})),
        (Method::DELETE, "stacks/web", Value::Null),
        (Method::PATCH, "agents/shop-1", json!({ "labels": {} })),
    ] {
        let response = harness.admin.send(method.clone(), path, &body).await?;
        let problem: brokkr_api::Problem = response.json().await?;
        assert_eq!(problem.code, ErrorCode::BRK3005, "{method} {path}");
        assert!(problem.detail.contains("shop-1"), "{}", problem.detail);
        assert!(problem.next.contains("brokkr-broker epoch raise"), "{}", problem.next);
    }
    let submitted = harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(YAML).send();
    assert_eq!(refused(submitted.await?).await?, ErrorCode::BRK3005);
    // Tokens can be created and revoked.
    let wanted = json!({ "name": "while-held", "role": "viewer" });
    let created = harness.admin.send(Method::POST, "api-tokens", &wanted).await?.error_for_status()?;
    let token: Value = created.json().await?;
    let path = format!("api-tokens/{}", token["id"].as_str().expect("an id"));
    harness.admin.request(Method::DELETE, &path).send().await?.error_for_status()?;
    assert_eq!(harness.admin.get("stacks/web").await?.status(), StatusCode::OK);
    let report = agent.report(stack.id, before.sequence_id, brokkr_api::report::Transition::Healthy, 100);
    assert_eq!(agent.send_reports(&[report]).await?.status(), StatusCode::OK);

    // A dry run changes nothing.
    let shown = epoch(&harness.database, &["raise", "--dry-run"]).await?;
    assert!(
        shown.stdout.contains("shop-1") && shown.stdout.contains("nothing was changed"),
        "{}",
        shown.stdout
    );
    assert!(is_held(&harness.admin).await?);

    epoch(&harness.database, &["raise", "--by", "a test"]).await?;
    eventually(SOON, "the hold to end", async || !is_held(&harness.admin).await.unwrap_or(true)).await?;
    let answer = eventually(SOON, "the agent to be served in the new epoch", async || {
        match poll_on(&mut agent, harness.server.address, future).await {
            Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    assert!(
        answer
            .position
            .is_some_and(|now| { now.position.epoch > 1_700_000_000 && now.position > future.position })
    );
    assert_eq!(answer.envelope()?.stacks[0].sequence_id, before.sequence_id, "as restored");
    let after = harness.submit("web", YAML).await?;
    assert!(after.sequence_id.0 > before.sequence_id.0 + 1_000_000, "{}", after.sequence_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_made_up_position_causes_no_hold() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let future = beyond(agent.poll().await?.position.expect("a position"));
    let raised = Position { epoch: future.epoch + 7, horizon: 1 };
    let path = agent.path("target-state");
    let media_type = brokkr_api::protocol::ENVELOPE_MEDIA_TYPE;
    let viewer = harness.with_role(Role::Viewer).await?;
    // Signed with a key that is not the agent's.
    let forged = Caller::new(harness.server.address, Some(Key::generate()?.sign(&agent.claims())?));
    for position in [future, raised] {
        let ask = |caller: &Caller, path: &str| {
            caller
                .request(Method::GET, path)
                .header("accept", media_type)
                .header(header::POSITION, position.to_string())
        };
        assert_eq!(
            refused(ask(&harness.without_credential(), &path).send().await?).await?,
            ErrorCode::BRK1001
        );
        assert_eq!(refused(ask(&forged, &path).send().await?).await?, ErrorCode::BRK1001);
        assert_eq!(refused(ask(&viewer, "agents/shop-1/targets").send().await?).await?, ErrorCode::BRK1012);
        assert_eq!(refused(ask(&harness.admin, &path).send().await?).await?, ErrorCode::BRK1012);
    }
    assert!(!is_held(&harness.admin).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_behind_does_not_cause_a_hold() -> Result<()> {
    // A separate server: the transaction left open below holds back every tail of a server.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let mut open = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut open).await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut open).await?;
    let admin = harness.admin.without_waiting();
    let response = admin.send(Method::PUT, "stacks/web", &json!({ "labels": { "a": "b" } })).await?;
    let seen = crate::harness::position(&response).expect("a write has a position");
    let answer = poll_from(&agent, harness.server.address, seen).await?;
    assert_eq!(answer.code()?, ErrorCode::BRK3002);
    assert!(!is_held(&harness.admin).await?);
    // The check uses the state of the database, not that of the replica: a replica that was paused cannot
    // cause a hold.
    let cause =
        HoldCause::Ahead { witness: Witness::Replica, seen: seen.position, database: Position::default() };
    let hold = brokkr_broker::store::installation::installation_hold(
        &harness.server.broker.pool,
        seen.position,
        &cause,
    );
    assert_eq!(hold.await?, None);
    sqlx::query("COMMIT").execute(&mut open).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_replica_notices_that_its_database_was_restored() -> Result<()> {
    let harness = Harness::open().await?;
    assert!(!is_held(&harness.admin).await?);
    // For a replica, a lower epoch means a restore to before the raise.
    epoch(&harness.database, &["raise"]).await?;
    eventually(SOON, "the epoch to be seen", async || harness.server.broker.index.position().epoch > 1)
        .await?;
    harness.server.broker.restore.refresh(&harness.server.broker.pool).await?;
    let mut connection = harness.database.connect().await?;
    sqlx::query("UPDATE installation SET epoch = 1").execute(&mut connection).await?;
    eventually(SOON, "the replica to hold", async || is_held(&harness.admin).await.unwrap_or(false)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_an_agent_keeps_a_stack_after_its_target_was_lost_until_an_admin_decides() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let mut stacks = Vec::new();
    for name in ["kept", "removed", "retargeted", "gone"] {
        let stack = harness.stack(name, json!({ "selectors": ["*"] })).await?;
        harness.submit(name, YAML).await?;
        stacks.push(stack.id);
    }
    agent.hold(&stacks).await?;
    let [kept, removed, retargeted, gone] = [stacks[0], stacks[1], stacks[2], stacks[3]];
    // As after a restore: the targets are those of an older state, and the agent reports what it has.
    for name in ["kept", "removed", "retargeted"] {
        harness.target(name, json!({})).await?;
    }
    harness.delete("gone").await?;
    epoch(&harness.database, &["raise"]).await?;
    let raised = issued(&harness, Position { epoch: 2, horizon: 0 });
    let poll = async |agent: &mut Agent| -> Result<Vec<(StackId, Option<Removal>)>> {
        let answer = eventually(SOON, "an answer of the new epoch", async || {
            match poll_on(agent, harness.server.address, raised).await {
                Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        });
        let envelope = answer.await?.envelope()?;
        assert_eq!(envelope.status, AgentStatus::Active);
        Ok(envelope.stacks.iter().map(|stack| (stack.stack_id, stack.removal)).collect())
    };
    let deleted = (gone, Some(Removal::Deleted));
    assert_eq!(poll(&mut agent).await?, [deleted], "only what was deleted before is removed");
    let listed: Page<UnsettledStack> = harness.admin.get_json("system/unconfirmed").await?;
    assert_eq!(listed.items.len(), 3);
    assert_eq!(listed.items[0].agents[0].agent_name.as_str(), "shop-1");
    let system: System = harness.admin.get_json("system").await?;
    assert_eq!((system.stacks_unconfirmed, system.stacks_unknown), (3, 0));

    // An admin decides for two of them, and the third becomes a target again.
    let settle = async |stack: &str, kind: &str| {
        let path = format!("system/stacks/{stack}/settlement");
        harness.admin.send(Method::POST, &path, &json!({ "kind": kind })).await
    };
    let settled: Settled = read(settle("kept", "keep").await?).await?;
    assert_eq!((settled.targets, settled.removals), (1, 0));
    let settled: Settled = read(settle("removed", "remove").await?).await?;
    assert_eq!((settled.targets, settled.removals), (0, 1));
    harness.target("retargeted", json!({ "selectors": ["*"] })).await?;
    let mut now = poll(&mut agent).await?;
    now.sort_by_key(|(stack, _)| *stack);
    let mut expected = vec![(kept, None), (removed, Some(Removal::Untargeted)), (retargeted, None), deleted];
    expected.sort_by_key(|(stack, _)| *stack);
    assert_eq!(now, expected);
    for kind in ["keep", "remove"] {
        assert_eq!(refused(settle("kept", kind).await?).await?, ErrorCode::BRK3006);
    }

    // An ordinary change of targets still removes them.
    for name in ["kept", "retargeted"] {
        harness.target(name, json!({ "agents": [] })).await?;
    }
    let now = poll(&mut agent).await?;
    for stack in [kept, retargeted] {
        assert!(now.contains(&(stack, Some(Removal::Untargeted))), "{now:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_sequence_ids_continue_above_those_of_any_agent() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({})).await?;
    harness.submit("web", YAML).await?;
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
    let holds = json!({ "stacks": stacks, "held": held });
    let response = agent.caller().send(Method::PUT, &agent.path("holds"), &holds).await?;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let shown = epoch(&harness.database, &["raise"]).await?.stdout;
    let object = harness.submit("web", YAML).await?;
    assert!(object.sequence_id.0 < 10_000_000, "one agent cannot exhaust the ids: {}", object.sequence_id);
    assert!(shown.contains("ignored: agent shop-1"), "{shown}");
    Ok(())
}

/// The state after a restore: an agent holds a newer version of one stack, and two unknown ones.
struct Aftermath {
    harness: Harness,
    agent: Agent,
    held: Vec<HeldStack>,
}

impl Aftermath {
    /// `web` is known and older, `shop` and `cart` are unknown.
    async fn open() -> Result<Self> {
        let harness = Harness::open().await?;
        let agent = harness.agent("shop-1", json!({})).await?;
        let web = harness.stack("web", json!({ "selectors": ["*"] })).await?;
        harness.submit("web", YAML).await?;
        let held = |id: StackId, name: &str, sequence: i64| HeldStack {
            stack_id: id,
            project: "default".into(),
            stack_name: name.into(),
            sequence_id: SequenceId(sequence),
            checksum: Some(Checksum::of(content(name).as_bytes())),
            removing: false,
        };
        let held = vec![
            held(web.id, "web", 40),
            held(StackId::generate(), "shop", 41),
            held(StackId::generate(), "cart", 42),
        ];
        epoch(&harness.database, &["raise"]).await?;
        let mut aftermath = Self { harness, agent, held };
        aftermath.agent.have_versions(aftermath.held.clone()).await?;
        Ok(aftermath)
    }

    async fn list(&self, list: &str) -> Result<Vec<UnsettledStack>> {
        let page: Page<UnsettledStack> = self.harness.admin.get_json(&format!("system/{list}")).await?;
        Ok(page.items)
    }

    async fn settle(&self, stack: &str, how: Value) -> Result<reqwest::Response> {
        self.harness.admin.send(Method::POST, &format!("system/stacks/{stack}/settlement"), &how).await
    }

    async fn target(&self, stack: StackId) -> Result<Option<TargetStack>> {
        let envelope = envelope(&self.agent).await?;
        Ok(envelope.stacks.into_iter().find(|target| target.stack_id == stack))
    }
}

/// The agent's envelope, once the replica serves the new epoch.
async fn envelope(agent: &Agent) -> Result<Envelope> {
    eventually(SOON, "an answer of the new epoch", async || match agent.poll().await {
        Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?
    .envelope()
}

fn content(name: &str) -> String {
    format!("{YAML}# the lost version of {name}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_ahead_and_unknown_stacks_are_listed_and_settled() -> Result<()> {
    let aftermath = Aftermath::open().await?;
    let [web, shop, cart] = [0, 1, 2].map(|at| aftermath.held[at].clone());
    let ahead = aftermath.list("ahead").await?;
    assert_eq!(ahead.len(), 1);
    assert_eq!((ahead[0].stack_id, ahead[0].stack_name.as_str()), (web.stack_id, "web"));
    assert_eq!(ahead[0].agents[0].agent_name.as_str(), "shop-1");
    assert_eq!(ahead[0].agents[0].sequence_id, Some(web.sequence_id));
    assert_eq!(ahead[0].agents[0].checksum, web.checksum);
    assert!(ahead[0].restored.as_ref().is_some_and(|object| object.sequence_id < web.sequence_id));
    let unknown = aftermath.list("unknown").await?;
    let mut names: Vec<&str> = unknown.iter().map(|stack| stack.stack_name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cart", "shop"]);
    // The agent gets nothing about an unknown stack, and keeps it.
    assert_eq!(aftermath.target(shop.stack_id).await?, None);

    // The restored content is published again, with an id above the one that the agent holds.
    let settled: Settled =
        read(aftermath.settle("web", json!({ "kind": "publish_restored" })).await?).await?;
    let object = settled.object.expect("it is published at once");
    assert!(object.sequence_id > web.sequence_id && Some(object.checksum) != web.checksum);
    assert_eq!(
        aftermath.target(web.stack_id).await?.map(|target| target.sequence_id),
        Some(object.sequence_id)
    );
    assert!(aftermath.list("ahead").await?.is_empty());
    let again = aftermath.settle("web", json!({ "kind": "publish_restored" })).await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK3006);

    // An unknown stack has no restored content.
    let unpublished = aftermath.settle("shop", json!({ "kind": "publish_restored" })).await?;
    assert_eq!(refused(unpublished).await?, ErrorCode::BRK3006);

    // An unknown stack is removed from every agent that holds it.
    for lost in [&shop, &cart] {
        let path = lost.stack_id.to_string();
        let settled: Settled = read(aftermath.settle(&path, json!({ "kind": "delete" })).await?).await?;
        let marker = settled.object.expect("it is published at once");
        let target = aftermath.target(lost.stack_id).await?.expect("a removal");
        let deleted = Some(brokkr_api::envelope::Removal::Deleted);
        assert_eq!((target.sequence_id, target.removal), (marker.sequence_id, deleted));
    }
    assert!(aftermath.list("unknown").await?.is_empty());
    let system: System = aftermath.harness.admin.get_json("system").await?;
    assert_eq!((system.stacks_ahead, system.stacks_unknown, system.targets_kept), (0, 0, 0));
    assert_eq!((system.hold, system.raised.len()), (None, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_a_lost_stack_is_recreated_for_its_holders_and_they_keep_it_until_the_author_submits() -> Result<()>
{
    let aftermath = Aftermath::open().await?;
    let shop = aftermath.held[1].clone();
    let mut second = aftermath.harness.agent("shop-2", json!({})).await?;
    second.have_versions(vec![shop.clone()]).await?;

    // The operator sees the agents first.
    let holders: Page<Holder> = aftermath.harness.admin.get_json("system/stacks/shop/holders").await?;
    let names: Vec<&str> = holders.items.iter().map(|holder| holder.agent_name.as_str()).collect();
    assert_eq!(names, ["shop-1", "shop-2"]);
    assert!(holders.items.iter().all(|holder| holder.sequence_id == Some(shop.sequence_id)));

    let (first_before, second_before) = (envelope(&aftermath.agent).await?, envelope(&second).await?);
    let settled: Settled = read(aftermath.settle("shop", json!({ "kind": "recreate" })).await?).await?;
    assert_eq!((settled.stack_id, settled.stack_name.as_str()), (shop.stack_id, "shop"), "under its old id");
    assert_eq!((settled.object, settled.targets), (None, 2));
    let stack: Stack = aftermath.harness.admin.get_json("stacks/shop").await?;
    assert_eq!((stack.id, stack.sequence_id), (shop.stack_id, None), "without content");
    for (agent, before) in [(&aftermath.agent, first_before), (&second, second_before)] {
        let targets: Page<Target> = aftermath.harness.admin.get_json(&agent.path("targets")).await?;
        let target = targets.items.iter().find(|target| target.stack_id == shop.stack_id).expect("a target");
        assert_eq!(target.why, Why::Explicit);
        let now = envelope(agent).await?;
        assert!(
            now.stacks.iter().all(|target| target.stack_id != shop.stack_id),
            "nothing to change or remove"
        );
        assert_eq!(now.stacks, before.stacks, "every other stack is as before");
    }
    let entries: Page<AuditEntry> = aftermath.harness.admin.get_json("audit?limit=50").await?;
    let settlements = entries.items.iter().filter(|entry| entry.path.ends_with("/settlement"));
    assert_eq!(settlements.count(), 1, "the settlement is audited");

    // A stack cannot be recreated twice, nor if a stack of its id or name exists.
    let again = aftermath.settle("shop", json!({ "kind": "recreate" })).await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK3006);
    let known = aftermath.settle("web", json!({ "kind": "recreate" })).await?;
    assert_eq!(refused(known).await?, ErrorCode::BRK3006);
    aftermath.harness.stack("cart", json!({})).await?;
    let cart = aftermath.held[2].stack_id.to_string();
    let taken = aftermath.settle(&cart, json!({ "kind": "recreate" })).await?;
    assert_eq!(refused(taken).await?, ErrorCode::BRK2002);

    // The author submits, and both agents get it.
    let object = aftermath.harness.submit("shop", YAML).await?;
    assert!(object.sequence_id > shop.sequence_id);
    for agent in [&aftermath.agent, &second] {
        let envelope = envelope(agent).await?;
        let target =
            envelope.stacks.iter().find(|target| target.stack_id == shop.stack_id).expect("a target");
        assert_eq!((target.sequence_id, target.removal), (object.sequence_id, None));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_an_agent_that_reports_late_keeps_a_recreated_stack() -> Result<()> {
    let aftermath = Aftermath::open().await?;
    let shop = aftermath.held[1].clone();
    // This agent was away while the stacks were settled.
    let mut late = aftermath.harness.agent("shop-2", json!({})).await?;
    let settled: Settled = read(aftermath.settle("shop", json!({ "kind": "recreate" })).await?).await?;
    assert_eq!(settled.targets, 1);
    aftermath.harness.submit("shop", YAML).await?;
    late.have(&[shop.stack_id]).await?;
    let target = async |late: &Agent| -> Result<Option<TargetStack>> {
        Ok(envelope(late).await?.stacks.into_iter().find(|target| target.stack_id == shop.stack_id))
    };
    assert_eq!(target(&late).await?, None, "nothing happens to it, and nothing new is sent");
    let settled: Settled = read(aftermath.settle("shop", json!({ "kind": "keep" })).await?).await?;
    assert_eq!(settled.targets, 1);
    assert_eq!(target(&late).await?.map(|target| target.removal), Some(None), "it is a target now");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn j2_a_lost_stack_is_not_settled_while_agents_disagree_about_its_project_or_name() -> Result<()> {
    let aftermath = Aftermath::open().await?;
    aftermath.harness.project("red", Role::Owner).await?;
    let shop = aftermath.held[1].clone();
    let id = shop.stack_id.to_string();
    let mut liar = aftermath.harness.agent("liar", json!({})).await?;
    for lie in [
        HeldStack { project: "red".into(), ..shop.clone() },
        HeldStack { stack_name: "other".into(), ..shop.clone() },
    ] {
        liar.have_versions(vec![lie]).await?;
        for how in ["recreate", "delete"] {
            let refusal = aftermath.settle(&id, json!({ "kind": how })).await?;
            let problem: brokkr_api::Problem = refusal.json().await?;
            assert_eq!(problem.code, ErrorCode::BRK3006, "{how}");
            assert!(problem.detail.contains("default/shop"), "both are named: {problem}");
        }
    }
    let found = aftermath.harness.admin.get(&format!("stacks/{id}")).await?;
    assert_eq!(found.status(), StatusCode::NOT_FOUND, "nothing was created");

    liar.have_versions(vec![shop.clone()]).await?;
    let settled: Settled = read(aftermath.settle(&id, json!({ "kind": "recreate" })).await?).await?;
    assert_eq!((settled.project.as_str(), settled.stack_name.as_str()), ("default", "shop"));
    Ok(())
}

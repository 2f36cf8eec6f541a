//! The database went back: the replicas hold, the epoch is raised, and what is left is settled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_api::agents::{AgentStatus, HeldStack};
use brokkr_api::ids::Checksum;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::system::{Settled, System, UnsettledStack};
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, Name, Position, SequenceId, StackId};
use brokkr_testkit::process::run;
use brokkr_testkit::{Attempt, Database, Launch, Output, Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::house::{Agent, Caller, House, Key, Polled, YAML, polled, read, refused};

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

/// Somebody who has seen what the database cannot know of.
fn beyond(seen: Position) -> Position {
    Position { horizon: seen.horizon + 1_000_000, ..seen }
}

async fn poll_from(agent: &Agent, address: SocketAddr, position: Position) -> Result<Polled> {
    polled(agent.poll_request_at(address).header(header::POSITION, position.to_string())).await
}

/// Polls and tells what it holds if asked, as agents do.
async fn poll_on(agent: &mut Agent, address: SocketAddr, position: Position) -> Result<Polled> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = poll_from(agent, address, position).await?;
        match answer.status {
            StatusCode::PRECONDITION_REQUIRED if Instant::now() < until => {
                agent.hold(&agent.holds.clone()).await?;
            }
            // A replica that has not heard yet of what was raised or told says so, and agents ask again.
            StatusCode::SERVICE_UNAVAILABLE
                if answer.code()? == ErrorCode::BRK3002 && Instant::now() < until => {}
            _ => return Ok(answer),
        }
    }
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
    // Whoever must be let in, or shut out, is.
    let wanted = json!({ "name": "while-held", "role": "viewer" });
    let created = house.admin.send(Method::POST, "api-tokens", &wanted).await?.error_for_status()?;
    let token: Value = created.json().await?;
    let path = format!("api-tokens/{}", token["id"].as_str().expect("an id"));
    house.admin.request(Method::DELETE, &path).send().await?.error_for_status()?;
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
            Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
            other => Attempt::NotYet(format!("{other:?}")),
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
            Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
            other => Attempt::NotYet(format!("{other:?}")),
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

/// What is left of a restore: three stacks of which an agent has more than the database.
struct Aftermath {
    house: House,
    agent: Agent,
    held: Vec<HeldStack>,
}

impl Aftermath {
    /// `web` is known and older, `shop` and `cart` are unknown.
    async fn open() -> Result<Self> {
        let house = House::open().await?;
        let agent = house.agent("shop-1", json!({})).await?;
        let web = house.stack("web", json!({ "selectors": ["*"] })).await?;
        house.submit("web", YAML).await?;
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
        epoch(&house.database, &["raise"]).await?;
        let mut aftermath = Self { house, agent, held };
        let stacks: Vec<StackId> = aftermath.held.iter().map(|held| held.stack_id).collect();
        let told = json!({ "stacks": stacks, "held": aftermath.held });
        let path = aftermath.agent.path("holds");
        let response = aftermath.agent.caller().send(Method::PUT, &path, &told).await?;
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        aftermath.agent.holds = stacks;
        Ok(aftermath)
    }

    async fn list(&self, list: &str) -> Result<Vec<UnsettledStack>> {
        let page: Page<UnsettledStack> = self.house.admin.get_json(&format!("system/{list}")).await?;
        Ok(page.items)
    }

    async fn settle(&self, stack: &str, how: Value) -> Result<reqwest::Response> {
        self.house.admin.send(Method::POST, &format!("system/stacks/{stack}/settlement"), &how).await
    }

    async fn hand_over(&self, stack: StackId, bytes: &str) -> Result<reqwest::Response> {
        let path = self.agent.path(&format!("wanted-contents/{stack}"));
        Ok(self.agent.caller().request(Method::PUT, &path).body(bytes.to_owned()).send().await?)
    }

    async fn target(&self, stack: StackId) -> Result<Option<brokkr_api::envelope::TargetStack>> {
        let envelope =
            eventually(SOON, "an answer of the new epoch", async || match self.agent.poll().await {
                Ok(answer) if answer.status == StatusCode::OK => Attempt::Done(answer),
                other => Attempt::NotYet(format!("{other:?}")),
            })
            .await?
            .envelope()?;
        Ok(envelope.stacks.into_iter().find(|target| target.stack_id == stack))
    }
}

fn content(name: &str) -> String {
    format!("{YAML}# the lost version of {name}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_ahead_and_what_is_missing_is_listed_and_settled() -> Result<()> {
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
    // What nobody knows is not told anything of: it is kept.
    assert_eq!(aftermath.target(shop.stack_id).await?, None);

    // The restored content again, above what the agent holds.
    let settled: Settled = read(aftermath.settle("web", json!({ "kind": "keep_restored" })).await?).await?;
    let object = settled.object.expect("it is published at once");
    assert!(object.sequence_id > web.sequence_id && Some(object.checksum) != web.checksum);
    assert_eq!(
        aftermath.target(web.stack_id).await?.map(|target| target.sequence_id),
        Some(object.sequence_id)
    );
    assert!(aftermath.list("ahead").await?.is_empty());
    let again = aftermath.settle("web", json!({ "kind": "keep_restored" })).await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK3006);

    // What the agent has, under the old id; other bytes than those that it told of are refused.
    assert_eq!(
        refused(aftermath.hand_over(shop.stack_id, &content("shop")).await?).await?,
        ErrorCode::BRK3006
    );
    let settled: Settled =
        read(aftermath.settle("shop", json!({ "kind": "take", "agent": "shop-1" })).await?).await?;
    assert_eq!(settled.waiting_for.as_ref().map(Name::as_str), Some("shop-1"));
    let polled = eventually(SOON, "the agent to be asked", async || match aftermath.agent.poll().await {
        Ok(answer) if answer.headers.get(header::WANTS).is_some() => Attempt::Done(answer),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    assert_eq!(polled.headers[header::WANTS], "contents");
    let wanted: brokkr_api::system::WantedContents =
        aftermath.agent.caller().get_json(&aftermath.agent.path("wanted-contents")).await?;
    assert_eq!(wanted.items.iter().map(|wanted| wanted.stack_id).collect::<Vec<_>>(), [shop.stack_id]);
    assert_eq!(
        refused(aftermath.hand_over(shop.stack_id, &content("other")).await?).await?,
        ErrorCode::BRK3006
    );
    let object: brokkr_api::objects::DeploymentObject =
        read(aftermath.hand_over(shop.stack_id, &content("shop")).await?).await?;
    let target = aftermath.target(shop.stack_id).await?.expect("it is targeted again");
    assert_eq!((target.sequence_id, target.removal), (object.sequence_id, None));
    assert_eq!(Some(target.checksum), shop.checksum);

    // Or it goes, wherever it is.
    let settled: Settled =
        read(aftermath.settle(&cart.stack_id.to_string(), json!({ "kind": "delete" })).await?).await?;
    let marker = settled.object.expect("it is published at once");
    let target = aftermath.target(cart.stack_id).await?.expect("a removal");
    let deleted = Some(brokkr_api::envelope::Removal::Deleted);
    assert_eq!((target.sequence_id, target.removal), (marker.sequence_id, deleted));
    assert!(aftermath.list("unknown").await?.is_empty());
    let system: System = aftermath.house.admin.get_json("system").await?;
    assert_eq!((system.stacks_ahead, system.stacks_unknown, system.targets_kept), (0, 0, 1));
    assert_eq!((system.hold, system.raised.len()), (None, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_who_tells_late_keeps_a_stack_that_was_taken_back() -> Result<()> {
    let aftermath = Aftermath::open().await?;
    let shop = aftermath.held[1].clone();
    // It was away while everything was settled.
    let mut late = aftermath.house.agent("shop-2", json!({})).await?;
    aftermath.settle("shop", json!({ "kind": "take", "agent": "shop-1" })).await?;
    read::<Value>(aftermath.hand_over(shop.stack_id, &content("shop")).await?).await?;
    late.hold(&[shop.stack_id]).await?;
    let envelope =
        poll_on(&mut late, aftermath.house.server.address, Position::default()).await?.envelope()?;
    let target = envelope.stacks.iter().find(|target| target.stack_id == shop.stack_id).expect("told");
    assert_eq!(target.removal, None, "it was asked, told, and kept");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_lost_the_content_says_so() -> Result<()> {
    let aftermath = Aftermath::open().await?;
    let web = aftermath.held[0].clone();
    aftermath.settle("web", json!({ "kind": "take", "agent": "shop-1" })).await?;
    let path = aftermath.agent.path(&format!("wanted-contents/{}?why=it+is+gone", web.stack_id));
    let response = aftermath.agent.caller().request(Method::DELETE, &path).send().await?;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let wish = aftermath.list("ahead").await?[0].wish.clone().expect("it is shown");
    assert_eq!(wish.refused.as_deref(), Some("it is gone"));
    let settled = aftermath.settle("web", json!({ "kind": "keep_restored" })).await?;
    assert!(settled.status().is_success());
    Ok(())
}

//! The target state of an agent: ordered, waited for, and never older than what the agent has seen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_api::agents::{AgentStatus, Target, Why};
use brokkr_api::envelope::Removal;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::objects::TargetObject;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::{ErrorCode, SequenceId, StackId};
use brokkr_broker::store::outbox::{
    OutboxNotification, outbox_insert_on_conn, outbox_transaction_id_on_conn,
};
use brokkr_testkit::{Postgres, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{Agent, Harness, Polled, YAML, polled, position, refused};

async fn plain(agent: &Agent) -> Result<Vec<TargetObject>> {
    agent.caller().get_json(&agent.path("target-state")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_target_state_lists_the_objects_of_all_targeting_stacks_by_sequence_id() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("zebra", json!({ "agents": ["shop-1"] })).await?;
    harness.stack("apple", json!({ "selectors": ["env=prod"] })).await?;
    harness.stack("other", json!({ "selectors": ["env=dev"] })).await?;
    let first = harness.submit("zebra", YAML).await?;
    let second = harness.submit("apple", &format!("{YAML}# two\n")).await?;
    harness.submit("other", YAML).await?;
    let third = harness.submit("zebra", &format!("{YAML}# three\n")).await?;

    let objects = plain(&agent).await?;
    let got: Vec<_> = objects.iter().map(|target| target.object.sequence_id).collect();
    assert_eq!(got, [second.sequence_id, third.sequence_id], "the newest of each, ordered; not {first:?}");
    assert_eq!(objects[0].content, format!("{YAML}# two\n"));
    let by_admin: Vec<TargetObject> = harness.admin.get_json("agents/shop-1/target-state").await?;
    assert_eq!(by_admin, objects);

    let envelope = agent.poll().await?.envelope()?;
    let got: Vec<_> = envelope.stacks.iter().map(|stack| stack.sequence_id).collect();
    assert_eq!(got, [second.sequence_id, third.sequence_id]);
    assert_eq!(envelope.stacks[1].checksum, third.checksum);
    assert!(envelope.stacks.iter().all(|stack| stack.published_at <= stack.targeted_at));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a6_targets_lists_the_stacks_that_target_an_agent_and_why() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("by-name", json!({ "agents": ["shop-1"] })).await?;
    harness
        .stack("both", json!({ "agents": [agent.id], "selectors": ["env in (prod,test)", "env=dev"] }))
        .await?;
    harness.stack("neither", json!({ "selectors": ["!env"] })).await?;
    harness.submit("both", YAML).await?;

    let targets: Page<Target> = agent.caller().get_json(&agent.path("targets")).await?;
    let listed: Vec<(String, Why, bool)> = targets
        .items
        .iter()
        .map(|target| (target.stack_name.to_string(), target.why.clone(), target.sequence_id.is_some()))
        .collect();
    let selector = Why::Selector { selector: "env in (prod,test)".parse()? };
    assert_eq!(
        listed,
        [
            ("both".into(), Why::Explicit, true),
            ("both".into(), selector, true),
            ("by-name".into(), Why::Explicit, false)
        ]
    );
    // Read page by page, it is the same list.
    let (mut paged, mut after) = (Vec::new(), None::<String>);
    loop {
        let request = harness.admin.request(Method::GET, "agents/shop-1/targets").query(&[("limit", "1")]);
        let request = if let Some(after) = &after { request.query(&[("after", after)]) } else { request };
        let page: Page<Target> = request.send().await?.json().await?;
        paged.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, targets.items);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a7_an_agent_that_is_not_active_gets_no_deployment_objects() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    let before = agent.poll().await?;
    assert_eq!(before.envelope()?.stacks.len(), 1);

    let set = async |status: &str| {
        harness.admin.send(Method::PATCH, "agents/shop-1", &json!({ "status": status })).await
    };
    let (woken, changed) = tokio::join!(agent.wait(&before.etag, 20), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        set("INACTIVE").await
    });
    changed?;
    let envelope = woken?.envelope()?;
    assert_eq!((envelope.status, envelope.stacks.len()), (AgentStatus::Inactive, 0));
    assert!(plain(&agent).await?.is_empty());
    let content = agent.caller().get(&format!("deployment-objects/{}", object.sequence_id)).await?;
    assert_eq!(refused(content).await?, ErrorCode::BRK2001);
    set("ACTIVE").await?;
    assert_eq!(agent.poll().await?.etag, before.etag, "back as it was");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_waits_does_not_keep_the_envelope() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    let before = agent.poll().await?;
    let index = &harness.server.broker.index;
    let (woken, released) = tokio::join!(agent.wait(&before.etag, 20), async {
        let released =
            eventually(Duration::from_secs(15), "only the cache to keep the envelope", async || {
                ensure!(index.waiting() == 1, "{} polls wait", index.waiting());
                let (envelope, _) = index.envelope(agent.id).context("an envelope")?;
                let owners = Arc::strong_count(&envelope);
                ensure!(owners == 2, "this test, the cache, and {} more", owners - 2);
                anyhow::Ok(())
            })
            .await;
        harness.submit("web", &format!("{YAML}# two\n")).await.and(released)
    });
    released?;
    assert_ne!(woken?.etag, before.etag);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn held_stacks_become_removals_and_targets_again() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let web = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let unknown = StackId::generate();
    agent.have(&[web.id, unknown]).await?;
    assert_eq!(
        agent.poll().await?.envelope()?.stacks.len(),
        1,
        "an unknown stack is kept, and not mentioned"
    );

    harness.target("web", json!({})).await?;
    let untargeted = agent.poll().await?.envelope()?;
    assert_eq!(untargeted.stacks[0].removal, Some(Removal::Untargeted));
    assert_eq!(untargeted.stacks[0].sequence_id, object.sequence_id);
    assert!(plain(&agent).await?.is_empty());

    harness.target("web", json!({ "agents": ["shop-1"] })).await?;
    assert_eq!(agent.poll().await?.envelope()?.stacks[0].removal, None, "no longer a removal");

    let marker = harness.delete("web").await?;
    let deleted = agent.poll().await?.envelope()?;
    assert_eq!(deleted.stacks[0].removal, Some(Removal::Deleted));
    assert_eq!(deleted.stacks[0].sequence_id, marker.sequence_id);
    assert!(plain(&agent).await?[0].object.is_deletion_marker);

    agent.hold(&[]).await?;
    assert!(agent.poll().await?.envelope()?.stacks.is_empty());
    // The agent turns out to hold the deleted stack after all: the removal is in its envelope again.
    agent.hold(&[web.id]).await?;
    assert_eq!(agent.poll().await?.envelope()?.stacks[0].removal, Some(Removal::Deleted));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_with_another_set_of_held_stacks_is_asked_for_the_list() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    agent.holds = vec![StackId::generate()];
    let asked = agent.poll().await?;
    assert_eq!((asked.status, asked.code()?), (StatusCode::PRECONDITION_REQUIRED, ErrorCode::BRK3001));
    let holds = agent.holds.clone();
    agent.have(&holds).await?;
    assert_eq!(agent.poll().await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_unchanged_after_its_wait_and_at_once_when_the_broker_stops() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let first = agent.poll().await?;
    for name in ["etag", header::POSITION, header::PROTOCOL, header::SPREAD, "cache-control", "vary"] {
        assert!(first.headers.contains_key(name), "{name}");
    }
    let (bystander, started) = (harness.reading_bystander(), Instant::now());
    let unchanged = agent.wait(&format!("W/{}", first.etag), 1).await?;
    assert_eq!(unchanged.status, StatusCode::NOT_MODIFIED);
    assert_eq!(unchanged.headers["preference-applied"], "wait=1");
    let (took, limit) = (started.elapsed(), bystander.allows(Duration::from_secs(2)));
    assert!((Duration::from_millis(900)..limit).contains(&took), "{took:?}, allowed {limit:?}");
    drop(bystander);

    let waiting = async {
        let started = Instant::now();
        let answer = agent.wait(&first.etag, 60).await?;
        anyhow::Ok((answer.status, started.elapsed()))
    };
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        harness.server.stop().await;
    };
    let (answered, ()) = tokio::join!(waiting, stopping);
    let (status, took) = answered?;
    assert_eq!(status, StatusCode::NOT_MODIFIED);
    assert!(took < Duration::from_secs(10), "{took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_exactly_the_agents_that_it_affects() -> Result<()> {
    let harness = Harness::open().await?;
    let affected = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let unaffected = harness.agent("shop-2", json!({ "env": "dev" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let (one, two) = (affected.poll().await?.etag, unaffected.poll().await?.etag);
    let bystander = harness.writing_bystander();
    let submit = async {
        while harness.server.broker.index.waiting() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let started = Instant::now();
        harness.submit("web", YAML).await.map(|_| started)
    };
    let timed = async {
        let answer = affected.wait(&one, 20).await?;
        anyhow::Ok((answer, Instant::now()))
    };
    let (woken, slept, submitted) = tokio::join!(timed, unaffected.wait(&two, 2), submit);
    let (answer, woken_at) = woken?;
    assert_eq!(answer.envelope()?.stacks.len(), 1);
    let (took, limit) = (woken_at.duration_since(submitted?), bystander.allows(Duration::from_millis(1500)));
    assert!(took < limit, "{took:?}, allowed {limit:?}");
    assert_eq!(slept?.status, StatusCode::NOT_MODIFIED);

    // The agent already has the stack for another reason: its poll is not woken.
    let retarget = async {
        while harness.server.broker.index.waiting() < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        harness.target("web", json!({ "selectors": ["env=prod"], "agents": ["shop-1"] })).await
    };
    let (started, etag) = (Instant::now(), answer.etag);
    let (slept, changed) = tokio::join!(affected.wait(&etag, 2), retarget);
    changed?;
    let slept = slept?;
    assert_eq!((slept.status, slept.etag), (StatusCode::NOT_MODIFIED, etag));
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_behind_waits_and_reports_it() -> Result<()> {
    // A separate server: the transaction left open below would hold back every tail of a shared one.
    let harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let replica = harness.replica().await?;
    // If an agent sends the position of a write on this replica, the answer of the other replica contains
    // that write.
    for count in 0..20 {
        let request = harness.admin.request(Method::POST, "stacks/web/deployment-objects");
        let response = request.body(format!("{YAML}# {count}\n")).send().await?;
        let seen = position(&response).expect("a write has a position");
        let object: brokkr_api::objects::DeploymentObject = response.json().await?;
        let request = agent.poll_request_at(replica.address).header(header::POSITION, seen.to_string());
        let answer = polled(request).await?;
        assert_eq!(answer.envelope()?.stacks[0].sequence_id, object.sequence_id);
        assert!(answer.position.is_some_and(|now| now.position >= seen.position));
    }

    // An open transaction keeps the horizon down: the replica is behind, and says so.
    let mut connection = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut connection).await?;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut connection).await?;
    let admin = harness.admin.without_waiting();
    let response = admin.send(Method::PUT, "stacks/web", &json!({ "labels": { "a": "b" } })).await?;
    let seen = position(&response).expect("a write has a position");
    let request = || agent.poll_request().header(header::POSITION, seen.to_string());
    let answer = polled(request()).await?;
    assert_eq!((answer.status, answer.code()?), (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::BRK3002));
    assert!(answer.headers.contains_key("retry-after"));
    sqlx::query("COMMIT").execute(&mut connection).await?;
    assert_eq!(polled(request()).await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envelope_above_the_horizon_is_not_replaced_by_an_older_one_of_another_replica() -> Result<()> {
    // A separate server: an open write transaction holds back every tail of a server.
    let mut harness = Harness::open_on(Arc::new(Postgres::start().await?)).await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let other = harness.stack("other", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    harness.submit("other", YAML).await?;

    // Two transactions are left open, the first with an outbox notification; two objects are submitted above
    // them.
    let (mut first, mut second) = (harness.database.connect().await?, harness.database.connect().await?);
    let (mut first, mut second) = (first.begin().await?, second.begin().await?);
    outbox_insert_on_conn(&mut first, DEFAULT_PROJECT, OutboxNotification::Stack(other.id)).await?;
    outbox_transaction_id_on_conn(&mut second).await?;
    harness.admin = harness.admin.without_waiting();
    let newer = [harness.submit("web", YAML).await?, harness.submit("other", YAML).await?];
    let newer = newer.map(|object| object.sequence_id);
    let sequences = |answer: &Polled| -> Result<Vec<SequenceId>> {
        Ok(answer.envelope()?.stacks.iter().map(|stack| stack.sequence_id).collect())
    };
    // This replica loads the newest of everything, though its horizon is as low as that of the other.
    let ahead = harness.replica().await?;
    let newest = polled(agent.poll_request_at(ahead.address)).await?;
    assert_eq!(sequences(&newest)?, newer);
    let seen = newest.position.expect("an answer has a position");
    let ask = |server: SocketAddr| agent.poll_request_at(server).header(header::POSITION, seen.to_string());
    // The other replica reaches the same position, although it has read only one of the two stacks again: the
    // one with an outbox notification.
    first.commit().await?;
    let index = &harness.server.broker.index;
    eventually(Duration::from_secs(5), "the outbox notification to be processed", async || {
        index.freshness().stamp().0 == seen.position
    })
    .await?;
    assert_ne!(agent.poll().await?.etag, newest.etag);

    let behind = harness.server.address;
    let answer = polled(ask(behind).header("if-none-match", &newest.etag).header("prefer", "wait=5")).await?;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.code()?, ErrorCode::BRK3002);
    // The replica that sent this position does not make the agent wait for it.
    let (bystander, started) = (harness.reading_bystander(), Instant::now());
    let again = polled(ask(ahead.address).header("if-none-match", &newest.etag)).await?;
    let position = again.position.map(|token| token.position);
    assert_eq!((again.status, position), (StatusCode::NOT_MODIFIED, Some(seen.position)));
    let content = agent.at(ahead.address).request(Method::GET, &format!("deployment-objects/{}", newer[0]));
    let content = content.header(header::POSITION, seen.to_string()).send().await?;
    assert_eq!(content.text().await?, YAML);
    let (took, limit) = (started.elapsed(), bystander.allows(Duration::from_secs(1)));
    assert!(took < limit, "{took:?}, allowed {limit:?}");

    second.commit().await?;
    let answer = polled(ask(behind)).await?;
    assert_eq!(sequences(&answer)?, newer);
    assert!(answer.position.is_some_and(|now| now.position >= seen.position));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_protocol_version_is_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let request =
        agent.caller().request(Method::GET, &agent.path("target-state")).header(header::PROTOCOL, "99");
    assert_eq!(refused(request.send().await?).await?, ErrorCode::BRK2007);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_only_contents_that_concern_it() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let other = harness.agent("shop-2", json!({})).await?;
    let web = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let old = harness.submit("web", YAML).await?;
    let new = harness.submit("web", YAML).await?;
    let path =
        |object: &brokkr_api::objects::DeploymentObject| format!("deployment-objects/{}", object.sequence_id);
    assert_eq!(agent.caller().get(&path(&new)).await?.text().await?, YAML);
    assert_eq!(refused(agent.caller().get(&path(&old)).await?).await?, ErrorCode::BRK2001);
    assert_eq!(refused(other.caller().get(&path(&new)).await?).await?, ErrorCode::BRK2001);
    agent.hold(&[web.id]).await?;
    assert_eq!(agent.caller().get(&path(&old)).await?.text().await?, YAML, "any version of what it holds");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_an_approval_is_only_for_its_agent_and_for_the_newest_version() -> Result<()> {
    let harness = Harness::open().await?;
    let (one, two) = (harness.agent("shop-1", json!({})).await?, harness.agent("shop-2", json!({})).await?);
    harness.stack("web", json!({ "agents": ["shop-1", "shop-2"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let approve =
        async |body: Value| harness.admin.send(Method::POST, "stacks/web/prune-approvals", &body).await;
    let approvals = async |agent: &Agent| -> Result<Vec<u32>> {
        let stacks = agent.poll().await?.envelope()?.stacks;
        Ok(stacks[0].approvals.iter().map(|approval| approval.objects).collect())
    };
    let wanted = json!({ "sequence_id": object.sequence_id, "objects": 70, "agent": "shop-1" });
    assert_eq!(approve(wanted).await?.status(), StatusCode::CREATED);
    assert_eq!((approvals(&one).await?, approvals(&two).await?), (vec![70], vec![]));
    let before = two.poll().await?.etag;
    approve(json!({ "sequence_id": object.sequence_id, "objects": 80 })).await?;
    assert_ne!(two.poll().await?.etag, before);
    assert_eq!(approvals(&two).await?, [80]);
    let list: brokkr_api::page::Page<brokkr_api::approvals::PruneApproval> =
        harness.admin.get_json("stacks/web/prune-approvals?limit=1").await?;
    assert_eq!((list.items[0].agent_id, list.items[0].objects), (None, 80));
    let path = format!("stacks/web/prune-approvals?after={}", list.next.unwrap_or_default());
    let rest: brokkr_api::page::Page<brokkr_api::approvals::PruneApproval> =
        harness.admin.get_json(&path).await?;
    assert_eq!(rest.items.len(), 1);
    harness.submit("web", YAML).await?;
    assert_eq!(approvals(&one).await?, Vec::<u32>::new(), "it was for the previous version");
    let late = approve(json!({ "sequence_id": object.sequence_id, "objects": 70 })).await?;
    assert_eq!(refused(late).await?, ErrorCode::BRK2014);
    Ok(())
}

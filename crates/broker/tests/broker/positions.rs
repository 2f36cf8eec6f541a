//! J2: a claim of one caller affects others only with proof that the broker issued it. A proven claim puts the
//! installation on hold, which an admin explains and lifts.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::audit::{AuditEntry, AuditKind, RefusalReason};
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::system::{HoldCause, RaisedEpoch, System, UnsettledStack, Witness};
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{ErrorCode, Position, PositionToken};
use brokkr_testkit::{Attempt, eventually};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Agent, Caller, Harness, YAML, held, polled, read, refused};
use crate::restore::{beyond, is_held, issued};

const SOON: Duration = Duration::from_secs(30);

/// Waits until the audit log of the caller's project has a refusal of a forged position by this principal.
async fn audited(caller: &Caller, principal: &str) -> Result<AuditEntry> {
    let path = format!("audit?kind=refused&who={principal}");
    eventually(SOON, "the attempt to be audited", async || {
        let page: Page<AuditEntry> = match caller.get_json(&path).await {
            Ok(page) => page,
            Err(error) => return Attempt::NotYet(error.to_string()),
        };
        let forged = Some(RefusalReason::ForgedPosition);
        match page.items.into_iter().find(|entry| entry.refusal == forged) {
            Some(entry) => Attempt::Done(entry),
            None => Attempt::NotYet("no such entry".to_owned()),
        }
    })
    .await
}

/// Positions that the broker did not issue, each ahead of the database.
fn forgeries(harness: &Harness, seen: PositionToken) -> Vec<PositionToken> {
    let higher = beyond(seen);
    let mut flipped = issued(harness, higher);
    if let Some(mac) = &mut flipped.mac {
        mac[15] ^= 1;
    }
    vec![
        higher.into(),
        // The proof of a position that was issued, at another one.
        PositionToken { position: higher, ..seen },
        flipped,
        Position { epoch: i64::MAX, horizon: 1 }.into(),
        Position { epoch: seen.position.epoch, horizon: u64::MAX }.into(),
    ]
}

async fn show(agent: &Agent, position: PositionToken) -> Result<ErrorCode> {
    polled(agent.poll_request().header(header::POSITION, position.to_string())).await?.code()
}

async fn metric(harness: &Harness) -> Result<u64> {
    let mut registry = prometheus_client::registry::Registry::default();
    harness.server.broker.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    let line = text.lines().find_map(|line| line.strip_prefix("positions_refused_total "));
    Ok(line.context("the metric")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn j2_a_made_up_position_or_version_of_an_agent_stops_nobody_else() -> Result<()> {
    let harness = Harness::open().await?;
    let mut liar = harness.agent("shop-1", json!({})).await?;
    let mut honest = harness.agent("shop-2", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let first = harness.submit("web", YAML).await?;
    liar.hold(&[stack.id]).await?;
    honest.hold(&[stack.id]).await?;
    let seen = liar.poll().await?.position.context("a position")?;
    assert!(harness.server.broker.access.positions.is_issued(&seen), "every response carries a proof");
    let other = harness.project("payments", Role::Owner).await?;

    // Every forgery is refused at once, as a poll and as an ordinary read.
    let forgeries = forgeries(&harness, seen);
    for position in &forgeries {
        assert_eq!(show(&liar, *position).await?, ErrorCode::BRK1012, "{position}");
        let read = liar.caller().request(Method::GET, &liar.path("targets"));
        let read = read.header(header::POSITION, position.to_string()).send().await?;
        assert_eq!(refused(read).await?, ErrorCode::BRK1012, "{position}");
    }
    assert_eq!(metric(&harness).await?, 2 * forgeries.len() as u64);
    let entry = audited(&harness.admin, &format!("agent:{}", liar.id)).await?;
    assert_eq!((entry.kind, entry.status), (AuditKind::Refused, 409));

    // Nor does a made-up version of a stack, which only lists the agent.
    liar.have_versions(vec![held(stack.id, "web", i64::MAX - 1)]).await?;
    let ahead: Page<UnsettledStack> = harness.admin.get_json("system/ahead").await?;
    let agents: Vec<_> = ahead.items.iter().flat_map(|stack| &stack.agents).collect();
    assert_eq!(agents.len(), 1);
    assert_eq!(agents[0].agent_id, liar.id);

    // There is no hold: other agents are served, and other projects deploy.
    let system: System = harness.admin.get_json("system").await?;
    assert_eq!(system.hold, None);
    let made = other.send(Method::PUT, "stacks/ledger", &json!({})).await?;
    assert!(made.status().is_success(), "{}", made.text().await?);
    let submitted = other.request(Method::POST, "stacks/ledger/deployment-objects").body(YAML);
    assert_eq!(other.write(submitted).await?.status(), StatusCode::CREATED);
    let next = harness.submit("web", YAML).await?;
    assert!(next.sequence_id.0 - first.sequence_id.0 < 100, "ids do not jump: {}", next.sequence_id);
    assert_eq!(honest.poll().await?.envelope()?.stacks[0].sequence_id, next.sequence_id);
    // The liar itself is served again as soon as it shows what it has really seen.
    let request = liar.poll_request().header(header::POSITION, seen.to_string());
    assert_eq!(polled(request).await?.status, StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_made_up_position_of_a_token_is_refused_and_audited() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let seen = agent.poll().await?.position.context("a position")?;
    let owner = harness.with_role(Role::Owner).await?;
    let who: WhoAmI = owner.get_json("whoami").await?;
    let forgeries = forgeries(&harness, seen);
    for position in &forgeries {
        for path in ["agents", "stacks/web/status", "stacks/web/status/summary", "agents/shop-1/why"] {
            let response = owner.request(Method::GET, path).header(header::POSITION, position.to_string());
            assert_eq!(refused(response.send().await?).await?, ErrorCode::BRK1012, "{path} {position}");
        }
    }
    assert!(!is_held(&harness.admin).await?);
    let entry = audited(&owner, &format!("token:{}", who.token_id)).await?;
    assert_eq!(entry.status, 409);
    // A malformed one is an invalid request, and a lower one needs no proof.
    for malformed in ["1.2.zz", "1", "1.2.3.4", "1.2."] {
        let response = owner.request(Method::GET, "agents").header(header::POSITION, malformed);
        assert_eq!(refused(response.send().await?).await?, ErrorCode::BRK2003, "{malformed}");
    }
    let response = owner.request(Method::GET, "agents").header(header::POSITION, "1.1").send().await?;
    assert_eq!(response.status(), StatusCode::OK);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_another_replica_issued_is_proven_there_and_here() -> Result<()> {
    let harness = Harness::open().await?;
    let replica = harness.replica().await?;
    harness.stack("web", json!({})).await?;
    let response = harness.admin.send(Method::PUT, "stacks/web", &json!({ "labels": { "a": "b" } })).await?;
    let written = crate::harness::position(&response).context("a write has a position")?;
    assert!(replica.broker.access.positions.is_issued(&written));
    let there = harness.admin.at(replica.address).request(Method::GET, "agents");
    let there = there.header(header::POSITION, written.to_string()).send().await?;
    assert_eq!(there.status(), StatusCode::OK);
    Ok(())
}

/// An agent shows a position that the broker issued before its database was restored.
async fn hold(harness: &Harness) -> Result<(Agent, Position)> {
    let agent = harness.agent("shop-1", json!({})).await?;
    let seen = agent.poll().await?.position.context("a position")?;
    let future = beyond(seen);
    assert_eq!(show(&agent, issued(harness, future)).await?, ErrorCode::BRK3005);
    Ok((agent, future))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_sees_why_the_broker_is_on_hold_and_lifts_it_with_a_reason() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let before = harness.submit("web", YAML).await?;
    let (mut agent, future) = hold(&harness).await?;
    let system: System = harness.admin.get_json("system").await?;
    let held = system.hold.context("a hold")?;
    let HoldCause::Ahead { witness, seen, database } = &held.cause else { anyhow::bail!("{held:?}") };
    assert_eq!(*witness, Witness::Agent { agent_id: agent.id, agent_name: "shop-1".into() });
    assert_eq!(*seen, future);
    assert!(*database < future && database.horizon > 0, "{database}");

    // Only an admin lifts it, and only with a reason.
    let reason = json!({ "reason": "restored on purpose, INC-42" });
    for role in [Role::Viewer, Role::Deployer, Role::Owner, Role::Auditor] {
        let caller = harness.with_role(role).await?;
        let response = caller.send(Method::POST, "system/hold/lift", &reason).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK1002, "{role:?}");
    }
    let response = agent.caller().send(Method::POST, "system/hold/lift", &reason).await?;
    assert_eq!(refused(response).await?, ErrorCode::BRK1002);
    for bad in [json!({}), json!({ "reason": " " }), json!({ "reason": "x".repeat(1025) })] {
        let response = harness.admin.send(Method::POST, "system/hold/lift", &bad).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003, "{bad}");
    }
    assert!(is_held(&harness.admin).await?);

    let lifted: RaisedEpoch =
        read(harness.admin.send(Method::POST, "system/hold/lift", &reason).await?).await?;
    assert_eq!(lifted.epoch_before, 1);
    assert!(lifted.epoch > 1_700_000_000);
    assert_eq!(lifted.reason.as_deref(), Some("restored on purpose, INC-42"));
    assert!(lifted.held_because.as_ref().is_some_and(|because| because.contains("shop-1")), "{lifted:?}");
    assert!(!is_held(&harness.admin).await?, "this replica knows it at once");
    let system: System = harness.admin.get_json("system").await?;
    assert_eq!((system.hold, system.epoch), (None, lifted.epoch));
    assert_eq!(system.raised.iter().map(|raised| &raised.reason).collect::<Vec<_>>(), [&lifted.reason]);
    let entries: Page<AuditEntry> = harness.admin.get_json("audit?limit=50").await?;
    let lifts = entries.items.iter().filter(|entry| entry.route == "/api/v1/system/hold/lift");
    let statuses: Vec<u16> =
        lifts.filter(|entry| entry.kind == AuditKind::Change).map(|entry| entry.status).collect();
    assert_eq!(statuses, [200], "the lift is audited");

    // The agent follows into the new epoch, and ids continue above those that may be lost.
    eventually(SOON, "the agent to be served in the new epoch", async || {
        let request = agent.poll_request().header(header::POSITION, issued(&harness, future).to_string());
        match polled(request).await {
            Ok(answer) if answer.status == StatusCode::OK => {
                let now = answer.position.map(|now| now.position.epoch);
                assert_eq!(now, Some(lifted.epoch));
                Attempt::Done(())
            }
            Ok(answer) if answer.status == StatusCode::PRECONDITION_REQUIRED => {
                let reported = agent.have(&[]).await;
                Attempt::NotYet(format!("it is asked what it holds: {reported:?}"))
            }
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    let after = harness.submit("web", YAML).await?;
    assert!(after.sequence_id.0 > before.sequence_id.0 + 1_000_000, "{}", after.sequence_id);

    // Without a hold there is nothing to lift.
    let again = harness.admin.send(Method::POST, "system/hold/lift", &reason).await?;
    assert_eq!(refused(again).await?, ErrorCode::BRK3009);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_proves_a_newer_position_puts_the_broker_on_hold() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let seen = agent.poll().await?.position.context("a position")?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let who: WhoAmI = viewer.get_json("whoami").await?;
    let proven = issued(&harness, beyond(seen)).to_string();
    let response = viewer.request(Method::GET, "agents").header(header::POSITION, proven).send().await?;
    assert_eq!(refused(response).await?, ErrorCode::BRK3005);
    let system: System = harness.admin.get_json("system").await?;
    let hold = system.hold.context("a hold")?;
    assert!(
        matches!(&hold.cause, HoldCause::Ahead { witness: Witness::Token { token_id, .. }, .. }
                 if *token_id == who.token_id),
        "{hold:?}"
    );
    assert!(!hold.because.contains(&who.name), "other projects see this text: {}", hold.because);
    Ok(())
}

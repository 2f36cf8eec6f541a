//! History marks: the database may lose transactions without a lower position, for example by a failover to a standby that
//! did not receive them. A caller that has seen them carries a mark that is missing in the database.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::audit::{AuditEntry, RefusalReason};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::protocol::header;
use brokkr_api::system::{Hold, HoldCause, System, Witness};
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{ErrorCode, HistoryMark, Position, PositionToken};
use brokkr_testkit::{Attempt, eventually};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Agent, Harness, YAML, held, polled, position, refused};
use crate::restore::{epoch, is_held};

const SOON: Duration = Duration::from_secs(30);

/// A mark that the database does not have, made this long ago.
fn lost_mark(age: SignedDuration) -> Result<HistoryMark> {
    let micros = u64::try_from((Timestamp::now() - age).as_microsecond())?;
    Ok(HistoryMark(micros * 2048 + 7))
}

/// What the installation issued before its database lost the mark.
fn issued(harness: &Harness, position: Position, mark: HistoryMark) -> PositionToken {
    harness.server.broker.access.positions.issue((position, mark))
}

async fn show(agent: &Agent, position: PositionToken) -> Result<crate::harness::Polled> {
    polled(agent.poll_request().header(header::POSITION, position.to_string())).await
}

async fn hold(harness: &Harness) -> Result<Option<Hold>> {
    Ok(harness.admin.get_json::<System>("system").await?.hold)
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_a_replica_that_misses_its_mark_holds_the_installation_until_the_epoch_is_raised() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    let seen = agent.poll().await?.position.context("a position")?;
    assert_ne!(seen.mark, HistoryMark::default());
    let age = Timestamp::now().duration_since(seen.mark.time());
    assert!(age.abs() < SignedDuration::from_mins(5), "{age:?}");

    // As after a failover to a standby without the last transactions: no position shows it.
    let mut connection = harness.database.connect().await?;
    sqlx::query("DELETE FROM history_marks").execute(&mut connection).await?;
    let hold = eventually(SOON, "the replica to hold", async || match hold(&harness).await {
        Ok(Some(hold)) => Attempt::Done(hold),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    assert!(matches!(hold.cause, HoldCause::HistoryLost { witness: Witness::Replica, .. }), "{hold:?}");
    assert!(is_held(&harness.admin).await?);
    let code = show(&agent, seen).await?.code()?;
    assert!(matches!(code, ErrorCode::BRK3001 | ErrorCode::BRK3005), "{code}");

    epoch(&harness.database, &["raise"]).await?;
    let mut agent = agent;
    eventually(SOON, "the agent to be served", async || {
        let answer = show(&agent, seen).await?;
        if answer.status == StatusCode::PRECONDITION_REQUIRED {
            agent.have(&[]).await?;
        }
        anyhow::ensure!(answer.status == StatusCode::OK, "{}", answer.status);
        Ok(())
    })
    .await?;
    assert!(!is_held(&harness.admin).await?, "what was lost before the raise is settled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn e4_an_agent_that_shows_a_lost_mark_holds_the_installation() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let seen = agent.poll().await?.position.context("a position")?;
    let lost = lost_mark(SignedDuration::from_secs(5))?;

    // J2: only with proof.
    let unproven = PositionToken { mark: lost, ..seen };
    assert_eq!(show(&agent, unproven).await?.status, StatusCode::OK);
    // What was settled by a raise, and what is older than the marks that are kept, proves nothing.
    let earlier = Position { epoch: seen.position.epoch - 1, ..seen.position };
    let settled = issued(&harness, earlier, lost);
    assert_eq!(show(&agent, settled).await?.status, StatusCode::OK);
    let deleted = issued(&harness, seen.position, lost_mark(SignedDuration::from_hours(8 * 24))?);
    assert_eq!(show(&agent, deleted).await?.status, StatusCode::OK);
    assert_eq!(hold(&harness).await?, None);

    let proven = issued(&harness, seen.position, lost);
    assert_eq!(show(&agent, proven).await?.code()?, ErrorCode::BRK3005);
    let hold = hold(&harness).await?.context("a hold")?;
    let witness = Witness::Agent { agent_id: agent.id, agent_name: "shop-1".into() };
    assert_eq!(hold.cause, HoldCause::HistoryLost { witness, at: lost.time() });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_shows_a_lost_mark_holds_the_installation_and_is_not_named_to_others() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let who: WhoAmI = viewer.get_json("whoami").await?;
    let here = harness.server.broker.index.position();
    let proven = issued(&harness, here, lost_mark(SignedDuration::from_secs(5))?).to_string();
    let response = viewer.request(Method::GET, "agents").header(header::POSITION, proven).send().await?;
    assert_eq!(refused(response).await?, ErrorCode::BRK3005);
    let hold = hold(&harness).await?.context("a hold")?;
    assert!(
        matches!(&hold.cause, HoldCause::HistoryLost { witness: Witness::Token { token_id, .. }, .. }
                 if *token_id == who.token_id),
        "{hold:?}"
    );
    assert!(!hold.because.contains(&who.name), "{}", hold.because);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_to_a_write_carries_a_mark_that_covers_it() -> Result<()> {
    let harness = Harness::open().await?;
    let replica = harness.replica().await?;
    let (one, two) = (&harness.admin, harness.admin.at(replica.address));
    let mut connection = harness.database.connect().await?;
    let mut last = HistoryMark::default();
    for round in 0..4 {
        let admin = if round % 2 == 0 { one } else { &two };
        // The first changes the index, which marks it; the second does not.
        let stack = admin.send(Method::PUT, &format!("stacks/web-{round}"), &json!({})).await?;
        let token = json!({ "name": format!("ci-{round}"), "role": "viewer" });
        let token = admin.send(Method::POST, "api-tokens", &token).await?;
        for response in [stack, token] {
            assert!(response.status().is_success(), "{}", response.status());
            let mark = position(&response).context("a write has a position")?.mark;
            assert!(mark > last, "{mark:?} was made before {last:?}");
            let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM history_marks WHERE id = $1)")
                .bind(mark.0.cast_signed())
                .fetch_one(&mut connection)
                .await?;
            assert!(exists, "{mark:?}");
            last = mark;
        }
    }
    // Without changes, nothing is marked.
    let mut counts = Vec::new();
    for _ in 0..2 {
        for broker in [&harness.server.broker, &replica.broker] {
            let begun = broker.index.freshness().at;
            let read_again = || broker.index.freshness().at > begun + Duration::from_secs(1);
            eventually(SOON, "the outbox to be read several times", async || read_again()).await?;
        }
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM history_marks").fetch_one(&mut connection).await?;
        counts.push(count);
    }
    assert_eq!(counts[0], counts[1]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a4_sequence_ids_skip_what_a_former_primary_may_have_issued() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let first: DeploymentObject = harness.submit("web", YAML).await?;
    let mut connection = harness.database.connect().await?;
    let timeline: String =
        sqlx::query_scalar("SELECT timeline FROM installation").fetch_one(&mut connection).await?;
    assert_eq!(timeline, "00000001");
    // As after a failover: the last id was issued on another timeline.
    sqlx::query("UPDATE installation SET timeline = '00000000'").execute(&mut connection).await?;
    let second = harness.submit("web", YAML).await?;
    assert!(second.sequence_id.0 > first.sequence_id.0 + 1_000_000, "{:?}", second.sequence_id);
    let third = harness.submit("web", YAML).await?;
    assert!(third.sequence_id.0 < second.sequence_id.0 + 100, "{:?}", third.sequence_id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_another_content_under_the_same_sequence_id_is_audited() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let mut mine = held(stack.id, "web", object.sequence_id.0);
    mine.checksum = Some(object.checksum);
    agent.have_versions(vec![mine.clone()]).await?;
    let page: Page<AuditEntry> = harness.admin.get_json("audit?kind=refused").await?;
    assert!(page.items.is_empty(), "{page:?}");
    mine.checksum = Some(Checksum::of(b"another"));
    agent.have_versions(vec![mine]).await?;
    eventually(SOON, "the contradiction to be audited", async || {
        let page: Page<AuditEntry> = harness.admin.get_json("audit?kind=refused").await?;
        let found = page.items.iter().any(|entry| entry.refusal == Some(RefusalReason::OtherContent));
        anyhow::ensure!(found, "{page:?}");
        Ok(())
    })
    .await?;
    assert_eq!(hold(&harness).await?, None, "J2: a claim without proof holds nothing");
    Ok(())
}

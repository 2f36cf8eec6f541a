//! How sessions end: by signing out, with their token, when they are not used, and after some hours.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::report::Transition;
use brokkr_api::sessions::SessionDetails;
use brokkr_api::tokens::{NewApiToken, Role, WhoAmI};
use brokkr_broker::store::sessions::session_delete_ended;
use brokkr_testkit::eventually;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::{made_up, sign_in};
use crate::harness::{Caller, Harness, YAML, read, refused, session_secret};
use crate::streams::Reader;

/// Sessions are cached for 2 seconds; streams check them every 3 seconds. A constant assertion compares the sum with the promise.
const SOON: Duration = Duration::from_secs(20);

/// Within this time, nothing is left of a revoked token.
const PROMISED: Duration = Duration::from_secs(5);

async fn is_refused(caller: &Caller) -> Result<()> {
    eventually(SOON, "the session to be refused", async || {
        caller.get("whoami").await.is_ok_and(|response| response.status() == 401)
    })
    .await
}

/// Changes all sessions, as if time had passed.
async fn change(harness: &Harness, assignment: &'static str) -> Result<()> {
    let update = sqlx::AssertSqlSafe(format!("UPDATE sessions SET {assignment}"));
    sqlx::query(update).execute(&mut harness.database.connect().await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_ends_the_session_and_its_streams_and_clears_the_browser() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let stack = harness.stack("web", json!({ "selectors": ["*"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let (console, other_tab) = (harness.admin.sign_in().await?, harness.admin.sign_in().await?);
    let elsewhere = console.at(second.address);
    assert!(elsewhere.get("whoami").await?.status().is_success());
    let mut here = Reader::open(&console, "events/stream", None).await?;
    let mut there = Reader::open(&elsewhere, "events/stream", None).await?;
    let mut kept = Reader::open(&other_tab, "events/stream", None).await?;
    agent
        .send_reports(&[agent.report(stack.id, object.sequence_id, Transition::Healthy, 1_700_000_000)])
        .await?;
    for reader in [&mut here, &mut there, &mut kept] {
        assert_eq!(reader.next().await?.context("an event")?.name, "event", "a cookie opens streams");
    }

    let closed = console.request(Method::DELETE, "sessions/current").send().await?;
    assert_eq!(closed.status(), 204);
    let deleted = "__Host-brokkr=; Secure; HttpOnly; SameSite=Strict; Path=/; Max-Age=0";
    assert_eq!(closed.headers()["set-cookie"], deleted);
    assert_eq!(closed.headers()["clear-site-data"], "\"storage\"");
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001, "at once, here");
    assert!(here.next().await?.is_none() && there.next().await?.is_none(), "the streams end by themselves");
    is_refused(&elsewhere).await?;
    assert!(other_tab.get("whoami").await?.status().is_success(), "other sessions of the token stay");
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_sessions_at_every_replica_within_five_seconds() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let made: NewApiToken = read(
        harness.admin.send(Method::POST, "api-tokens", &json!({ "name": "ana", "role": "viewer" })).await?,
    )
    .await?;
    let token = harness.admin.with_token(made.token);
    let console = token.sign_in().await?;
    let elsewhere = console.at(second.address);
    for caller in [&console, &elsewhere] {
        assert_eq!(caller.get_json::<WhoAmI>("whoami").await?.token_id, made.info.id);
    }
    let mut stream = Reader::open(&elsewhere, "events/stream", None).await?;
    let path = format!("api-tokens/{}", made.info.id);
    assert_eq!(harness.admin.request(Method::DELETE, &path).send().await?.status(), 204);
    let bystander = harness.reading_bystander();
    let begun = Instant::now();
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001, "at once, here");
    is_refused(&elsewhere).await?;
    assert!(stream.next().await?.is_none());
    let (took, allowed) = (begun.elapsed(), bystander.allows(PROMISED));
    assert!(took < allowed, "{took:?}, allowed {allowed:?}");
    assert_eq!(refused(sign_in(&token).await?).await?, ErrorCode::BRK1001);
    second.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_it_is_not_used_for_an_hour() -> Result<()> {
    let harness = Harness::open().await?;
    let console = harness.admin.sign_in().await?;
    let mut connection = harness.database.connect().await?;
    change(&harness, "last_used_at = now() - interval '59 minutes'").await?;
    let open: SessionDetails = console.get_json("sessions/current").await?;
    let unused = Timestamp::now().duration_since(open.session.last_used_at).as_secs();
    assert!(unused < 60, "the use was not stored: {unused} s");

    // The use is stored once a minute, not with each request.
    change(&harness, "last_used_at = now() - interval '30 seconds'").await?;
    let version = "SELECT xmin::text FROM sessions";
    let before: String = sqlx::query_scalar(version).fetch_one(&mut connection).await?;
    for _ in 0..14 {
        assert!(console.get("whoami").await?.status().is_success());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let after: String = sqlx::query_scalar(version).fetch_one(&mut connection).await?;
    assert_eq!(before, after, "a request that only reads has written");

    change(&harness, "last_used_at = now() - interval '61 minutes'").await?;
    is_refused(&console).await?;
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001);
    let path = format!("sessions/{}", open.session.id);
    assert_eq!(
        refused(harness.admin.get(&path).await?).await?,
        ErrorCode::BRK2001,
        "it is not shown as open"
    );
    session_delete_ended(&harness.server.broker.pool).await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(&mut connection).await?;
    assert_eq!(left, 0, "its row is deleted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_after_twelve_hours_even_if_it_is_used() -> Result<()> {
    let harness = Harness::open().await?;
    let console = harness.admin.sign_in().await?;
    assert!(console.get("whoami").await?.status().is_success());
    change(&harness, "created_at = now() - interval '12 hours', expires_at = now()").await?;
    is_refused(&console).await?;
    let deleted = session_delete_ended(&harness.server.broker.pool).await?;
    // The task of the replica may have been faster.
    assert!(deleted <= 1, "{deleted}");
    let mut connection = harness.database.connect().await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(&mut connection).await?;
    assert_eq!(left, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_never_outlives_its_token() -> Result<()> {
    let harness = Harness::open().await?;
    let wanted = json!({ "name": "short", "role": "viewer", "ttl_seconds": 600 });
    let made: NewApiToken = read(harness.admin.send(Method::POST, "api-tokens", &wanted).await?).await?;
    let token = harness.admin.with_token(made.token);
    let response = sign_in(&token).await?;
    let console = token.with_token(session_secret(&response)?);
    let open: SessionDetails = read(response).await?;
    assert_eq!(Some(open.session.expires_at), made.info.expires_at);
    assert_eq!(open.session.idle_at, open.session.expires_at);
    assert!(console.get("whoami").await?.status().is_success());

    // A token that is replaced ends sooner than the session expected.
    let path = format!("api-tokens/{}/rotate", made.info.id);
    harness.admin.send(Method::POST, &path, &json!({ "overlap_seconds": 0 })).await?.error_for_status()?;
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_deleted_with_their_token() -> Result<()> {
    let harness = Harness::open().await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    let console = viewer.sign_in().await?;
    assert!(console.get("whoami").await?.status().is_success());
    let mut connection = harness.database.connect().await?;
    sqlx::query("DELETE FROM api_tokens WHERE role = 'viewer'").execute(&mut connection).await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions").fetch_one(&mut connection).await?;
    assert_eq!(left, 0);
    is_refused(&console).await
}

/// A browser that keeps trying with a session that has ended costs no queries.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_unknown_is_looked_up_once_in_a_while() -> Result<()> {
    let harness = Harness::open().await?;
    let console = harness.admin.with_token(made_up());
    assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001);
    // A lookup would now fail with another error.
    let mut connection = harness.database.connect().await?;
    sqlx::query("ALTER TABLE sessions RENAME TO hidden_sessions").execute(&mut connection).await?;
    for _ in 0..20 {
        assert_eq!(refused(console.get("whoami").await?).await?, ErrorCode::BRK1001);
    }
    Ok(())
}

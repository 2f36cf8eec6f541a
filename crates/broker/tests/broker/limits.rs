//! Rate limits and quotas.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::agents::SessionVerdict;
use brokkr_api::tokens::{NewApiToken, Role};
use brokkr_api::{AgentId, ErrorCode};
use brokkr_broker::access::credentials::CACHED_FOR;
use brokkr_broker::access::secret::{Secret, SecretKind};
use brokkr_testkit::eventually;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Caller, Harness, Key, Signer, YAML, read, refused, register, token};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_guesses_tokens_is_limited_and_agents_behind_it_are_not() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let guess = Caller::new(harness.server.address, Some("brk_wrong".to_owned()));
    let guesses = (0..600).map(|_| async { guess.get("stacks").await });
    let answers: Vec<_> = futures::stream::iter(guesses).buffer_unordered(20).collect().await;
    let mut limited = Vec::new();
    for answer in answers {
        let answer = answer?;
        if answer.status() == 429 {
            limited.push(answer);
        }
    }
    let one = limited.pop().context("some are limited")?;
    let seconds: u64 = one.headers()["retry-after"].to_str()?.parse()?;
    assert!((1..=20).contains(&seconds), "{seconds}");
    assert_eq!(refused(one).await?, ErrorCode::BRK1006);
    // Authenticated callers are not affected.
    assert_eq!(agent.poll().await?.status, 200);
    assert!(harness.admin.get("stacks").await?.status().is_success());
    // Agents cannot join from this address for a moment.
    let token = harness.join_token("shop-2", json!({})).await?;
    let joined = register(&harness.without_credential(), &token.token, &Key::generate()?).await?;
    assert_eq!(refused(joined).await?, ErrorCode::BRK1006);
    eventually(Duration::from_secs(30), "the address to be unblocked", async || {
        let key = Key::generate().expect("a key");
        register(&harness.without_credential(), &token.token, &key)
            .await
            .is_ok_and(|joined| joined.status() != 429)
    })
    .await
}

/// Makes each lookup of a token fail, so that a request that is answered otherwise has not looked up its token.
async fn hide_tokens(harness: &Harness) -> Result<()> {
    let mut connection = harness.database.connect().await?;
    sqlx::query("ALTER TABLE api_tokens RENAME TO hidden_tokens").execute(&mut connection).await?;
    Ok(())
}

/// Returns a caller with a well-formed token that does not exist.
fn forged(harness: &Harness) -> Caller {
    let secret = Secret::generate(SecretKind::ApiToken).expose().to_owned();
    Caller::new(harness.server.address, Some(secret))
}

/// Sends guesses until the address is blocked.
async fn fail_too_often(harness: &Harness) -> Result<()> {
    let guess = Caller::new(harness.server.address, Some("brk_wrong".to_owned()));
    let guesses = (0..300).map(|_| async { guess.get("stacks").await });
    let answers: Vec<_> = futures::stream::iter(guesses).buffer_unordered(20).collect().await;
    let limited = answers.into_iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.status() == 429));
    anyhow::ensure!(limited.count() > 0, "the address is not blocked");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_address_costs_no_query_and_known_callers_behind_it_are_served() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let viewer = harness.with_role(Role::Viewer).await?;
    assert_eq!(viewer.get("stacks").await?.status(), 200);
    let new = harness.with_role(Role::Viewer).await?;
    // Longer than a token is cached: what counts is that it was valid here before.
    let started = std::time::Instant::now();
    while started.elapsed() < CACHED_FOR + Duration::from_secs(1) {
        fail_too_often(&harness).await?;
        assert_eq!(viewer.get("stacks").await?.status(), 200);
        assert_eq!(agent.poll().await?.status, 200);
    }
    hide_tokens(&harness).await?;
    fail_too_often(&harness).await?;
    assert_eq!(refused(forged(&harness).get("stacks").await?).await?, ErrorCode::BRK1006);
    // The same for a valid token that this replica has never seen: it cannot tell the difference without a query.
    assert_eq!(refused(new.get("stacks").await?).await?, ErrorCode::BRK1006);
    assert_eq!(agent.poll().await?.status, 200);
    eventually(Duration::from_secs(30), "lookups after the block", async || {
        new.get("stacks").await.is_ok_and(|answer| answer.status().is_server_error())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_token_is_looked_up_once_and_a_new_one_is_accepted_at_once() -> Result<()> {
    let harness = Harness::open().await?;
    for _ in 0..20 {
        let wanted = json!({ "name": "ci", "role": "viewer" });
        let made: NewApiToken = read(harness.admin.send(Method::POST, "api-tokens", &wanted).await?).await?;
        let new = Caller::new(harness.server.address, Some(made.token));
        assert_eq!(new.get("stacks").await?.status(), 200);
    }
    let unknown = forged(&harness);
    assert_eq!(unknown.get("stacks").await?.status(), 401);
    hide_tokens(&harness).await?;
    assert_eq!(unknown.get("stacks").await?.status(), 401, "it is cached");
    assert!(forged(&harness).get("stacks").await?.status().is_server_error(), "another one is not");
    eventually(Duration::from_secs(30), "the token to be looked up again", async || {
        unknown.get("stacks").await.is_ok_and(|answer| answer.status().is_server_error())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn guessed_tokens_do_not_take_all_database_connections() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({})).await?;
    let mut lock = harness.database.connect().await?;
    sqlx::query("BEGIN").execute(&mut lock).await?;
    sqlx::query("LOCK TABLE api_tokens IN ACCESS EXCLUSIVE MODE").execute(&mut lock).await?;
    let guesses: Vec<_> = (0..100)
        .map(|_| {
            let caller = forged(&harness);
            tokio::spawn(async move { caller.get("stacks").await })
        })
        .collect();
    let mut connection = harness.database.connect().await?;
    let blocked = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(Duration::from_secs(30), "guesses to be looked up", async || {
        let waiting: Result<i64, _> = sqlx::query_scalar(blocked).fetch_one(&mut connection).await;
        waiting.is_ok_and(|waiting| waiting > 0)
    })
    .await?;
    // Needs a connection of the pool that guesses would use up.
    assert_eq!(agent.open_session(2).await?, SessionVerdict::Serves);
    let waiting: i64 = sqlx::query_scalar(blocked).fetch_one(&mut connection).await?;
    assert!(waiting <= 4, "{waiting}");
    sqlx::query("ROLLBACK").execute(&mut lock).await?;
    for guess in guesses {
        let status = guess.await??.status();
        assert!(matches!(status.as_u16(), 401 | 429 | 503), "{status}");
    }
    Ok(())
}

/// An agent that this replica does not know may have joined elsewhere a moment ago, so its request waits for the index.
#[tokio::test(flavor = "multi_thread")]
async fn invented_agents_do_not_delay_the_lookups_of_other_credentials() -> Result<()> {
    let harness = Harness::open().await?;
    let joined = harness.agent("shop-1", json!({})).await?;
    let mut tokens = Vec::new();
    for _ in 0..30 {
        let secret = token(&harness.database, Role::Viewer).await?;
        tokens.push(Caller::new(harness.server.address, Some(secret)));
    }
    // A transaction that is open while a later one ends keeps the index behind: each of these requests waits for as long as
    // it may.
    let (mut open, mut later) = (harness.database.connect().await?, harness.database.connect().await?);
    sqlx::query("BEGIN").execute(&mut open).await?;
    for connection in [&mut open, &mut later] {
        sqlx::query("SELECT pg_current_xact_id()").execute(connection).await?;
    }
    let ask = || {
        let agent = AgentId::generate();
        let signer = Signer { agent, installation: joined.installation, key: Key::generate()? };
        let caller = Caller::new(harness.server.address, Some(signer.key.sign(&signer.claims(None))?));
        Ok(async move { caller.get(&format!("agents/{agent}/targets")).await })
    };
    let invented = (0..40).map(|_| ask().map(tokio::spawn)).collect::<Result<Vec<_>>>()?;
    let looked_up = async {
        for token in &tokens {
            let status = token.get("stacks").await?.status();
            anyhow::ensure!(status == 200, "a valid token got {status}");
        }
        Ok(())
    };
    let mut invented = futures::stream::iter(invented).buffer_unordered(40);
    tokio::select! {
        biased;
        looked_up = looked_up => looked_up?,
        first = invented.next() => anyhow::bail!("valid tokens waited for invented agents: {first:?}"),
    }
    sqlx::query("ROLLBACK").execute(&mut open).await?;
    while let Some(answer) = invented.next().await {
        let status = answer??.status();
        assert!(matches!(status.as_u16(), 401 | 429 | 503), "{status}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_cannot_exceed_its_quotas_and_sees_its_usage() -> Result<()> {
    let harness = Harness::open().await?;
    let shop = harness.project("shop", Role::Owner).await?;
    let allow = async |quotas: serde_json::Value| -> Result<()> {
        let put = harness.admin.send(Method::PUT, "projects/shop", &json!({ "allowed": quotas })).await?;
        put.error_for_status()?;
        Ok(())
    };
    allow(json!({ "stacks": 1, "tokens": 2 })).await?;
    let stack = async |name: &str| shop.send(Method::PUT, &format!("stacks/{name}"), &json!({})).await;
    assert_eq!(stack("one").await?.status(), 201);
    let second = stack("two").await?;
    assert_eq!(second.status(), 403);
    let problem = second.text().await?;
    assert!(problem.contains("would use 2 of 1 stacks") && problem.contains("BRK1007"), "{problem}");
    assert_eq!(stack("one").await?.status(), 200, "an existing stack can be changed");
    shop.request(Method::DELETE, "stacks/one").send().await?.error_for_status()?;
    assert_eq!(stack("two").await?.status(), 201, "the deleted stack does not count");

    let token = json!({ "name": "ci", "role": "viewer" });
    assert_eq!(shop.send(Method::POST, "api-tokens", &token).await?.status(), 201);
    let third = shop.send(Method::POST, "api-tokens", &token).await?;
    assert_eq!(refused(third).await?, ErrorCode::BRK1007);

    let submit = || shop.request(Method::POST, "stacks/two/deployment-objects").body(YAML).send();
    assert_eq!(submit().await?.status(), 201);
    for quotas in
        [json!({ "stored_bytes": 1 }), json!({ "stored_bytes": 1_000_000, "submissions_per_hour": 1 })]
    {
        allow(quotas).await?;
        eventually(Duration::from_secs(20), "the quota to apply", async || {
            submit().await.is_ok_and(|answer| answer.status() == 403)
        })
        .await?;
    }
    Ok(())
}

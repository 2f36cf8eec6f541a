//! Rate limits and quotas.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::tokens::Role;
use brokkr_testkit::eventually;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Caller, Harness, Key, YAML, refused, register};

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

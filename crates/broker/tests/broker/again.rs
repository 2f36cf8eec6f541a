//! A poll that repeats the previous one on its connection byte for byte is not parsed again; its answer is
//! determined again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::protocol::header;
use brokkr_testkit::eventually;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use crate::harness::{Agent, Caller, Harness, Polled, YAML, polled};

/// A poll that can be sent repeatedly, byte for byte.
struct RepeatedPoll(RequestBuilder);

impl RepeatedPoll {
    /// Sends the poll until the listener recognises it as a repetition. The first one has to be parsed. This
    /// is not checked for a poll that waits: the listener itself answers it, so its response has no request
    /// id in any case.
    async fn settled(agent: &Agent, etag: &str, wait: Option<u64>) -> Result<Self> {
        let poll = agent.poll_request().header("if-none-match", etag);
        let same = Self(match wait {
            Some(seconds) => poll.header("prefer", format!("wait={seconds}")),
            None => poll,
        });
        assert!(wait.is_some() || was_parsed(&same.sent().await?), "the first one is parsed");
        same.recognised().await?;
        Ok(same)
    }

    /// Repeats the poll until it is sent on the connection of the previous one: a fast client may open
    /// another connection.
    async fn recognised(&self) -> Result<()> {
        eventually(Duration::from_secs(10), "the repeated poll to be recognised", async || {
            let response = self.sent().await?;
            anyhow::ensure!(response.status == StatusCode::NOT_MODIFIED, "{}", response.status);
            anyhow::ensure!(!was_parsed(&response), "it was parsed");
            anyhow::Ok(())
        })
        .await
    }

    async fn sent(&self) -> Result<Polled> {
        polled(self.0.try_clone().context("it has no body")?).await
    }
}

/// Only the response to a request that was parsed has a request id.
fn was_parsed(polled: &Polled) -> bool {
    polled.headers.contains_key(header::REQUEST_ID)
}

async fn settled(harness: &Harness, name: &str) -> Result<(Agent, Polled, RepeatedPoll)> {
    let agent = harness.agent(name, json!({ "env": "prod" })).await?;
    let first = agent.poll().await?;
    let same = RepeatedPoll::settled(&agent, &first.etag, None).await?;
    Ok((agent, first, same))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_poll_gets_a_change() -> Result<()> {
    let harness = Harness::open().await?;
    let (_agent, first, same) = settled(&harness, "shop-1").await?;
    assert_eq!(same.sent().await?.etag, first.etag);
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let object = harness.submit("web", YAML).await?;
    let response = same.sent().await?;
    assert_eq!(response.status, StatusCode::OK);
    let ids: Vec<_> = response.envelope()?.stacks.iter().map(|wanted| wanted.sequence_id).collect();
    assert_eq!(ids, [object.sequence_id]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_repeated_poll_is_woken() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let etag = agent.poll().await?.etag;
    let same = RepeatedPoll::settled(&agent, &etag, Some(1)).await?;
    let (response, submitted) = tokio::join!(
        async {
            loop {
                let response = same.sent().await?;
                if response.status != StatusCode::NOT_MODIFIED {
                    return anyhow::Ok(response);
                }
            }
        },
        async {
            harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
            harness.submit("web", YAML).await
        }
    );
    let (response, submitted) = (response?.envelope()?, submitted?);
    let ids: Vec<_> = response.stacks.iter().map(|wanted| wanted.sequence_id).collect();
    assert_eq!(ids, [submitted.sequence_id]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_agent_is_refused_although_it_repeats_its_poll() -> Result<()> {
    let harness = Harness::open().await?;
    let (_agent, _, same) = settled(&harness, "shop-1").await?;
    harness.admin.request(Method::DELETE, "agents/shop-1/keys").send().await?.error_for_status()?;
    eventually(Duration::from_secs(5), "the repeated poll to be refused", async || {
        let response = same.sent().await?;
        anyhow::ensure!(response.status == StatusCode::UNAUTHORIZED, "{}", response.status);
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_session_is_refused_although_it_repeats_its_poll() -> Result<()> {
    let harness = Harness::open().await?;
    let (mut agent, _, same) = settled(&harness, "shop-1").await?;
    agent.open_session(2).await?;
    assert_eq!(same.sent().await?.code()?, ErrorCode::BRK1004);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assertion_expires_although_its_poll_is_repeated() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let etag = agent.poll().await?.etag;
    // Valid for ten seconds, including the tolerated clock difference.
    let (now, leeway) = (jiff::Timestamp::now().as_second(), 60);
    let mut claims = agent.claims();
    claims["iat"] = json!(now - leeway);
    claims["exp"] = json!(now - leeway + 10);
    let caller = Caller::new(harness.server.address, Some(agent.key.sign(&claims)?));
    let as_before = agent.poll_request().build()?;
    let poll = caller.request(Method::GET, &agent.path("target-state")).header("if-none-match", &etag);
    let names = ["accept", header::PROTOCOL, header::SESSION, header::HOLDS];
    let same = RepeatedPoll(
        names.iter().fold(poll, |poll, name| poll.header(*name, as_before.headers()[*name].clone())),
    );
    assert_eq!(same.sent().await?.status, StatusCode::NOT_MODIFIED);
    same.recognised().await?;
    eventually(Duration::from_secs(40), "the assertion to end", async || {
        let response = same.sent().await?;
        anyhow::ensure!(response.status == StatusCode::UNAUTHORIZED, "{}", response.status);
        anyhow::Ok(())
    })
    .await
}

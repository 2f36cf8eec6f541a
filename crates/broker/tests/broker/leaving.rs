//! Agents that leave: no stack targets a retired agent, and no removal waits for an abandoned one.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::agents::{Agent, AgentStatus, RegisteredAgent};
use brokkr_api::envelope::Removal;
use brokkr_api::page::Page;
use brokkr_api::status::StackStatus;
use brokkr_api::tokens::JoinToken;
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, Key, YAML, read, register};

const SOON: Duration = Duration::from_secs(10);

async fn rows(harness: &Harness) -> Result<usize> {
    Ok(harness.admin.get_json::<Page<StackStatus>>("stacks/web/status").await?.items.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_targets_a_retired_agent_and_its_held_stacks_are_removed() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    harness.stack("more", json!({ "selectors": ["env=prod"] })).await?;
    harness.submit("web", YAML).await?;
    harness.submit("more", &YAML.replace("web", "more")).await?;
    let before = agent.poll().await?.envelope()?;
    agent.hold(&before.stacks.iter().map(|stack| stack.stack_id).collect::<Vec<_>>()).await?;

    let retired = harness.admin.send(Method::POST, "agents/shop-1/retirement", &json!({})).await?;
    let retired: Agent = read(retired).await?;
    assert_eq!(
        (retired.status, retired.labels.len()),
        (AgentStatus::Active, 0),
        "it stays active, to remove its stacks"
    );
    eventually(SOON, "both to be removed", async || {
        let stacks = agent.poll().await.and_then(|polled| polled.envelope()).map(|found| found.stacks);
        stacks.is_ok_and(|stacks| {
            stacks.len() == 2 && stacks.iter().all(|stack| stack.removal == Some(Removal::Untargeted))
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_agent_blocks_no_removal_is_refused_and_can_rejoin() -> Result<()> {
    let harness = Harness::open().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    harness.submit("web", YAML).await?;
    let held = agent.poll().await?.envelope()?.stacks[0].stack_id;
    agent.hold(&[held]).await?;
    harness.admin.request(Method::DELETE, "stacks/web").send().await?.error_for_status()?;
    assert_eq!(rows(&harness).await?, 1, "the removal waits for the agent");

    let without_reason = json!({ "reason": " " });
    let refused = harness.admin.send(Method::POST, "agents/shop-1/abandonment", &without_reason).await?;
    assert_eq!(refused.status(), 422);
    let reason = json!({ "reason": "the shop burnt down" });
    let given_up: Agent =
        read(harness.admin.send(Method::POST, "agents/shop-1/abandonment", &reason).await?).await?;
    let abandoned = given_up.abandoned.clone().expect("it says so");
    assert_eq!((abandoned.by.as_str(), abandoned.because.as_str()), ("test", "the shop burnt down"));
    assert_eq!(given_up.status, AgentStatus::Inactive);
    eventually(SOON, "no removal to wait", async || rows(&harness).await.is_ok_and(|rows| rows == 0)).await?;
    assert_eq!(agent.caller().get(&agent.path("targets")).await?.status(), 401);

    let token = harness.admin.send(Method::POST, "agents/shop-1/join-tokens", &json!({})).await?;
    let token: JoinToken = read(token).await?;
    let back = register(&harness.without_credential(), &token.token, &Key::generate()?).await?;
    assert_eq!(read::<RegisteredAgent>(back).await?.agent_id, agent.id);
    let back: Agent = harness.admin.get_json("agents/shop-1").await?;
    assert_eq!((back.status, back.abandoned), (AgentStatus::Active, None));
    Ok(())
}

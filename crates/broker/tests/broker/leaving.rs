//! Agents that leave: no stack targets a retired agent, and no removal waits for an abandoned one.

use std::time::Duration;

use anyhow::Result;
use brokkr_api::ErrorCode;
use brokkr_api::agents::{Agent, AgentStatus, RegisteredAgent};
use brokkr_api::audit::AuditEntry;
use brokkr_api::envelope::Removal;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use brokkr_api::status::StackStatus;
use brokkr_api::tokens::{JoinToken, Role};
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Harness, Key, YAML, current, read, refused, register};

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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_left_is_deleted_everywhere_and_its_name_is_free() -> Result<()> {
    let harness = Harness::open().await?;
    let second = harness.replica().await?;
    let mut agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    let stack = harness.stack("web", json!({ "agents": ["shop-1"] })).await?;
    let object = harness.submit("web", YAML).await?;
    agent.hold(&[stack.id]).await?;
    agent
        .send_reports(&[agent.report(stack.id, object.sequence_id, Transition::Failed, 1_700_000_000)])
        .await?
        .error_for_status()?;
    let delete = async || harness.admin.write(harness.admin.request(Method::DELETE, "agents/shop-1")).await;
    assert_eq!(refused(delete().await?).await?, ErrorCode::BRK2022, "its keys are valid");
    harness
        .admin
        .write(harness.admin.request(Method::DELETE, "agents/shop-1/keys"))
        .await?
        .error_for_status()?;
    assert_eq!(refused(delete().await?).await?, ErrorCode::BRK2022, "it holds a stack");
    let owner = harness.with_role(Role::Owner).await?;
    let by_owner = owner.request(Method::DELETE, "agents/shop-1").send().await?;
    assert_eq!(refused(by_owner).await?, ErrorCode::BRK1002);

    let mut connection = harness.database.connect().await?;
    // The agent removed the stack before its keys were revoked; its status is still there.
    sqlx::query("UPDATE agent_holds SET ended_at = now()").execute(&mut connection).await?;
    assert_eq!(delete().await?.status(), 204);
    assert_eq!(refused(harness.admin.get("agents/shop-1").await?).await?, ErrorCode::BRK2001);
    for table in ["agents", "agent_holds", "stack_status", "stack_targets", "agent_events", "join_tokens"] {
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(&mut connection)
            .await?;
        assert_eq!(rows, 0, "{table}");
    }
    let counted: i64 = sqlx::query_scalar("SELECT coalesce(sum(count), 0)::bigint FROM status_counts")
        .fetch_one(&mut connection)
        .await?;
    assert_eq!(counted, 0, "the counts follow");
    for broker in [&harness.server.broker, &second.broker] {
        current(broker).await?;
        let snapshot = broker.index.snapshot();
        assert_eq!((snapshot.agents(), snapshot.agent(agent.id).is_none()), (0, true));
        assert!(snapshot.stack(stack.id).expect("the stack stays").targets.is_empty());
    }
    let events = harness.admin.get_json::<Page<Event>>("events?stack=web").await?.items;
    assert_eq!(events.iter().map(|event| event.agent_id).collect::<Vec<_>>(), [agent.id], "events stay");
    let audit = harness.admin.get_json::<Page<AuditEntry>>("audit?kind=change&limit=1").await?.items;
    assert_eq!((audit[0].method.as_str(), audit[0].route.as_str()), ("DELETE", "/api/v1/agents/{agent}"));

    let successor = harness.agent("shop-1", json!({})).await?;
    assert_ne!(successor.id, agent.id);
    assert_eq!(harness.admin.get_json::<Agent>("agents/shop-1").await?.id, successor.id);
    second.stop().await;
    Ok(())
}

//! Suspensions (F2): which agents get them, and when they end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::page::Page;
use brokkr_api::suspensions::{EndCause, Suspended, Suspension};
use brokkr_testkit::eventually;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{Agent, Harness, YAML, read};

const DEADLINE: Duration = Duration::from_secs(60);

async fn suspend(harness: &Harness, wanted: Value) -> Result<Suspension> {
    read(harness.admin.send(Method::POST, "stacks/web/suspensions", &wanted).await?).await
}

async fn suspensions(harness: &Harness) -> Result<Vec<Suspension>> {
    let page: Page<Suspension> = harness.admin.get_json("stacks/web/suspensions").await?;
    Ok(page.items)
}

/// Returns what the agent leaves alone.
async fn left_alone(agent: &Agent) -> Result<Vec<Suspended>> {
    let stacks = agent.poll().await?.envelope()?.stacks;
    Ok(stacks.into_iter().next().context("it has the stack")?.suspensions)
}

async fn two_agents(harness: &Harness) -> Result<(Agent, Agent)> {
    let one = harness.agent("shop-1", json!({ "env": "prod", "site": "a" })).await?;
    let two = harness.agent("shop-2", json!({ "env": "prod", "site": "b" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    harness.submit("web", YAML).await?;
    Ok((one, two))
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_suspension_is_only_for_its_agents_and_ends_for_all_of_them() -> Result<()> {
    let harness = Harness::open().await?;
    let (one, two) = two_agents(&harness).await?;
    let before = two.poll().await?.etag;
    let object = json!({ "kind": "ConfigMap", "name": "greeting" });
    let wanted = json!({ "agent": "shop-1", "object": object, "seconds": 3600, "reason": "debugging" });
    let first = suspend(&harness, wanted).await?;
    assert_eq!((first.agent.as_deref(), first.seconds, first.ended.as_ref()), (Some("shop-1"), 3600, None));
    let got = left_alone(&one).await?;
    assert_eq!((got.len(), got[0].id, got[0].seconds), (1, first.id, 3600));
    assert_eq!(two.poll().await?.etag, before, "it does not concern the other agent");

    let second =
        suspend(&harness, json!({ "selector": "site=b", "seconds": 60, "reason": "load test" })).await?;
    assert_eq!(left_alone(&two).await?.iter().map(|one| one.id).collect::<Vec<_>>(), [second.id]);
    let resumed = harness.admin.send(Method::POST, "stacks/web/resume", &json!({ "id": second.id })).await?;
    let ended: Page<Suspension> = read(resumed).await?;
    assert_eq!(ended.items.iter().map(|one| one.id).collect::<Vec<_>>(), [second.id]);
    assert_eq!((left_alone(&one).await?.len(), two.poll().await?.etag), (1, before), "only that one");

    harness.admin.send(Method::POST, "stacks/web/resume", &json!({})).await?.error_for_status()?;
    assert_eq!(left_alone(&one).await?, []);
    let causes = suspensions(&harness).await?.into_iter().filter_map(|one| one.ended).map(|end| end.cause);
    assert_eq!(causes.collect::<Vec<_>>(), [EndCause::Resumed, EndCause::Resumed]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_suspension_expires_and_a_step_of_the_clock_does_not_end_it() -> Result<()> {
    let harness = Harness::open().await?;
    let (one, _) = two_agents(&harness).await?;
    suspend(&harness, json!({ "seconds": 7200, "reason": "debugging" })).await?;
    left_alone(&one).await?;
    let mut connection = sqlx::PgConnection::connect(&harness.database.url()).await?;
    // The clock of the database is set forward by a day.
    sqlx::query("UPDATE suspensions SET counted_at = counted_at - interval '1 day'")
        .execute(&mut connection)
        .await?;
    eventually(DEADLINE, "the broker to count", async || {
        let left = suspensions(&harness).await?[0].left_seconds;
        ensure!(left < 7200, "nothing is counted");
        ensure!((7000..7200).contains(&left), "{left} seconds are left");
        Ok(())
    })
    .await?;
    assert_eq!(left_alone(&one).await?.len(), 1);
    sqlx::query("UPDATE suspensions SET left_seconds = 1").execute(&mut connection).await?;
    eventually(DEADLINE, "the suspension to expire", async || {
        ensure!(left_alone(&one).await?.is_empty(), "the agent still has it");
        Ok(())
    })
    .await?;
    let end = suspensions(&harness).await?[0].ended.clone().context("it has ended")?;
    assert_eq!((end.cause, end.by), (EndCause::Expired, None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_forced_deletion_ends_the_suspensions_and_wrong_ones_are_refused() -> Result<()> {
    let harness = Harness::open().await?;
    let (mut one, _) = two_agents(&harness).await?;
    let stack = one.poll().await?.envelope()?.stacks[0].stack_id;
    one.hold(&[stack]).await?;
    for wrong in [
        json!({ "seconds": 0, "reason": "x" }),
        json!({ "seconds": 60, "reason": "" }),
        json!({ "seconds": 60, "reason": "x", "agent": "shop-1", "selector": "env=prod" }),
        json!({ "seconds": 2_592_001, "reason": "x" }),
    ] {
        let refused = harness.admin.send(Method::POST, "stacks/web/suspensions", &wrong).await?;
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
    suspend(&harness, json!({ "seconds": 3600, "reason": "debugging" })).await?;
    harness.admin.send(Method::DELETE, "stacks/web?force=true", &json!({})).await?.error_for_status()?;
    let target = one.poll().await?.envelope()?.stacks.into_iter().next().context("a removal")?;
    assert!(target.removal.is_some() && target.suspensions.is_empty(), "{target:?}");
    Ok(())
}

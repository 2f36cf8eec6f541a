//! Waves that wait (J5) and reruns of Jobs (A8): fixed in a version when it is submitted, and sent to agents with it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::ErrorCode;
use brokkr_api::envelope::TargetStack;
use brokkr_api::objects::{DeploymentObject, JobRef};
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Harness, read, refused};

const DEADLINE: Duration = Duration::from_secs(60);

fn jobs(note: &str) -> String {
    let job = |name: &str| {
        format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, namespace: shop}}\n---\n")
    };
    let smoke =
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: smoke, annotations: {helm.sh/hook: test}}\n---\n";
    format!("{}{}{smoke}# {note}\n", job("migrate"), job("index"))
}

async fn annotate(harness: &Harness, annotations: Value) -> Result<()> {
    let put = json!({ "annotations": annotations });
    harness.admin.send(Method::PUT, "stacks/web", &put).await?.error_for_status()?;
    Ok(())
}

async fn rerun(harness: &Harness, body: Value) -> Result<reqwest::Response> {
    harness.admin.send(Method::POST, "stacks/web/rerun", &body).await
}

/// Waits until the agent gets this version.
async fn target(agent: &Agent, object: &DeploymentObject) -> Result<TargetStack> {
    eventually(DEADLINE, "the agent to get the version", async || {
        let stack = agent.poll().await?.envelope()?.stacks.into_iter().next().context("no stack")?;
        ensure!(stack.sequence_id == object.sequence_id, "{stack:?}");
        anyhow::Ok(stack)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn j5_a_version_keeps_what_the_annotations_said_when_it_was_submitted() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let first = harness.submit("web", &jobs("1")).await?;
    assert_eq!((first.wave_wait_seconds, target(&agent, &first).await?.wave_wait_seconds), (None, None));

    annotate(&harness, json!({ "brokkr.io/wave-wait": "healthy" })).await?;
    assert_eq!(target(&agent, &first).await?.wave_wait_seconds, None, "it is fixed");
    let second = harness.submit("web", &jobs("2")).await?;
    assert_eq!(target(&agent, &second).await?.wave_wait_seconds, Some(300));

    annotate(&harness, json!({ "brokkr.io/wave-wait": "healthy", "brokkr.io/wave-wait-seconds": "7" }))
        .await?;
    let third = harness.submit("web", &jobs("3")).await?;
    assert_eq!(target(&agent, &third).await?.wave_wait_seconds, Some(7));

    let back = json!({ "to": second.sequence_id, "keep_open": true });
    let back: DeploymentObject =
        read(harness.admin.send(Method::POST, "stacks/web/roll-back", &back).await?).await?;
    assert_eq!(target(&agent, &back).await?.wave_wait_seconds, Some(300), "as in the restored version");
    for invalid in [
        json!({ "brokkr.io/wave-wait": "ready" }),
        json!({ "brokkr.io/wave-wait": "healthy", "brokkr.io/wave-wait-seconds": "5m" }),
    ] {
        let put = json!({ "annotations": invalid });
        let response = harness.admin.send(Method::PUT, "stacks/web", &put).await?;
        assert_eq!(refused(response).await?, ErrorCode::BRK2003);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_a_rerun_is_a_version_with_the_newest_content_that_names_the_jobs() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    assert_eq!(refused(rerun(&harness, json!({})).await?).await?, ErrorCode::BRK2003);
    let first = harness.submit("web", &jobs("1")).await?;
    assert!(target(&agent, &first).await?.rerun.is_empty());
    let job = |name: &str| JobRef { namespace: "shop".into(), name: name.into() };

    let all: DeploymentObject = read(rerun(&harness, json!({})).await?).await?;
    assert_eq!(all.checksum, first.checksum);
    assert_eq!(target(&agent, &all).await?.rerun, [job("migrate"), job("index")], "no test");
    let one: DeploymentObject = read(rerun(&harness, json!({ "job": "shop/index" })).await?).await?;
    assert_eq!(target(&agent, &one).await?.rerun, [job("index")]);
    assert_eq!(refused(rerun(&harness, json!({ "job": "smoke" })).await?).await?, ErrorCode::BRK2003);

    // Equal content runs nothing again.
    let again = harness.submit("web", &jobs("1")).await?;
    assert!(target(&agent, &again).await?.rerun.is_empty());
    let shown: Value = harness.admin.get_json("stacks/web/deployment-objects").await?;
    assert_eq!(shown["items"][1]["rerun"], json!([job("index")]), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_a_rerun_in_a_freeze_needs_an_owner_to_ignore_it() -> Result<()> {
    let harness = Harness::open().await?;
    harness.agent("shop-1", json!({ "env": "prod" })).await?;
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    harness.submit("web", &jobs("1")).await?;
    let (from, to) = (jiff::Timestamp::now(), jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1));
    let rule = json!({ "kind": "freeze", "from": from, "until": to, "reason": "sale" });
    let freeze = json!({ "selector": "env=prod", "rule": rule });
    let made = harness.admin.send(Method::PUT, "windows/sale", &freeze).await?;
    ensure!(made.status().is_success(), "{}", made.text().await?);
    let rerun_now = async |caller: crate::harness::Caller| {
        caller.send(Method::POST, "stacks/web/rerun?now=true&reason=again", &json!({})).await
    };
    let deployer = harness.with_role(brokkr_api::tokens::Role::Deployer).await?;
    assert_eq!(refused(rerun_now(deployer).await?).await?, ErrorCode::BRK1002);
    let owner = harness.with_role(brokkr_api::tokens::Role::Owner).await?;
    assert_eq!(rerun_now(owner).await?.status(), 201);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerun_names_at_most_a_hundred_jobs() -> Result<()> {
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let job = |number: usize| {
        format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{name: job-{number}, namespace: shop}}\n---\n")
    };
    harness.submit("web", &(0..101).map(job).collect::<String>()).await?;
    assert_eq!(refused(rerun(&harness, json!({})).await?).await?, ErrorCode::BRK2003);
    assert_eq!(rerun(&harness, json!({ "job": "job-7" })).await?.status(), 201);
    Ok(())
}

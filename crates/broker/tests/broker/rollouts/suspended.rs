//! Agents on which the stack is suspended: a rollout goes on without them.

use anyhow::{Context as _, Result, ensure};
use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutState;
use brokkr_api::why::Cause;
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use super::{AGENTS, DEADLINE, Fleet};

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_rollout_goes_on_without_a_suspended_agent_which_is_owed_the_version() -> Result<()> {
    let fleet = Fleet::new().await?;
    let last = AGENTS.len() - 1;
    let wanted = json!({ "agent": AGENTS[last], "seconds": 3600, "reason": "debugging" });
    fleet.harness.admin.send(Method::POST, "stacks/web/suspensions", &wanted).await?.error_for_status()?;
    // The others are healthy; the suspended one reports nothing about the version.
    let completed = eventually(DEADLINE, "the rollout to complete", async || {
        for agent in fleet.with_second().await?.into_iter().filter(|agent| *agent != last) {
            fleet.report(agent, Transition::Healthy).await?;
        }
        let rollout = fleet.rollout().await?;
        ensure!(rollout.state == RolloutState::Completed, "{rollout:?}");
        Ok(rollout)
    })
    .await?;
    let figures = &completed.figures;
    assert_eq!((figures.healthy, figures.bad, figures.in_flight), (3, 0, 0), "{figures:?}");
    let broken = fleet.why(last).await?.broken.context("an explanation")?;
    assert_eq!(broken.cause, Cause::Suspended, "{broken:?}");
    Ok(())
}

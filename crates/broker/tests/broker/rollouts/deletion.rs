//! Deletions in waves.

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutState;
use brokkr_api::stacks::Stack;
use reqwest::{Method, StatusCode};

use super::Fleet;
use crate::harness::YAML;

impl Fleet {
    /// Completes the rollout of the second version, and deletes the stack in two waves, with this soak time.
    async fn deleting(soak: u32) -> Result<Self> {
        let mut fleet = Self::new().await?;
        fleet.heal_until_all(&[]).await?;
        fleet.wait_for_state(RolloutState::Completed).await?;
        let marker = fleet.delete(soak).await?;
        (fleet.first, fleet.second) = (fleet.second, marker.sequence_id);
        Ok(fleet)
    }

    async fn delete(&self, soak: u32) -> Result<DeploymentObject> {
        let path = format!("stacks/web?waves=1,100%25&soak_seconds={soak}");
        let request = self.harness.admin.request(Method::DELETE, &path);
        Ok(self.harness.admin.write(request).await?.error_for_status()?.json().await?)
    }

    async fn submitted(&self, text: &str) -> Result<StatusCode> {
        let yaml = YAML.replace("greeting", text);
        let request = self.harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(yaml);
        Ok(self.harness.admin.write(request).await?.status())
    }

    /// Reports that the agent has removed the stack.
    async fn removed(&mut self, agent: usize) -> Result<()> {
        self.report(agent, Transition::Removed).await?;
        self.agents[agent].hold(&[]).await
    }

    async fn deleted(&self) -> Result<bool> {
        let stack: Stack = self.harness.admin.get_json(&format!("stacks/{}", self.stack)).await?;
        Ok(stack.deleted_at.is_some())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_in_waves_is_stopped_half_way_and_the_stack_is_kept() -> Result<()> {
    let mut fleet = Fleet::deleting(3600).await?;
    let canary = fleet.wait_for(1).await?;
    let removal = fleet.agents[canary[0]].poll().await?.envelope()?.stacks.remove(0).removal;
    assert!(removal.is_some(), "the agent has to remove the stack");
    assert!(!fleet.deleted().await?, "most agents keep it");
    assert_eq!(fleet.delete(3600).await?.sequence_id, fleet.second, "it is being deleted already");
    assert_eq!(fleet.submitted("welcome").await?, StatusCode::CONFLICT);

    fleet.removed(canary[0]).await?;
    for command in ["pause", "stop"] {
        fleet.command(command).await?.error_for_status()?;
        // It has removed the stack, and does not get it back.
        let envelope = fleet.agents[canary[0]].poll().await?.envelope()?;
        assert!(envelope.stacks.is_empty(), "after {command}: {envelope:?}");
    }
    let others = [0, 1, 2, 3].into_iter().filter(|agent| *agent != canary[0]);
    for agent in others {
        let target = fleet.agents[agent].poll().await?.envelope()?.stacks.remove(0);
        assert_eq!((target.sequence_id, target.removal), (fleet.first, None), "they keep it");
    }
    let rollout = fleet.rollout().await?;
    assert!(rollout.is_deletion && rollout.state == RolloutState::Stopped, "{rollout:?}");
    assert_eq!(fleet.submitted("welcome").await?, StatusCode::CREATED, "the next version keeps the stack");
    let envelope = fleet.agents[canary[0]].poll().await?.envelope()?;
    let again = envelope.stacks.first().context("the agent gets the stack again")?;
    assert!(again.removal.is_none() && again.sequence_id > fleet.second, "{again:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_in_waves_is_complete_when_every_agent_has_removed_the_stack() -> Result<()> {
    let mut fleet = Fleet::deleting(0).await?;
    // One more agent is targeted, but has nothing to remove.
    fleet.harness.agent("empty", serde_json::json!({ "env": "prod" })).await?;
    for _ in 0..fleet.agents.len() {
        let next = fleet.wait_for(1).await?;
        assert!(!fleet.deleted().await?);
        fleet.removed(next[0]).await?;
        // It gets nothing any more.
        fleet.agents.remove(next[0]);
    }
    let rollout = fleet.wait_for_state(RolloutState::Completed).await?;
    assert_eq!((rollout.figures.members, rollout.figures.healthy), (4, 4));
    assert!(fleet.deleted().await?);
    assert_eq!(fleet.submitted("welcome").await?, StatusCode::CONFLICT);
    Ok(())
}

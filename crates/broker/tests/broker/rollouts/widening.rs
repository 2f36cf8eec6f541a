//! Targets that gain many agents: these get the version that the others have in waves.

use anyhow::{Context as _, Result};
use brokkr_api::envelope::TargetStack;
use brokkr_api::page::Page;
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::rollouts::{Rollout, RolloutState};
use brokkr_api::stacks::Stack;
use brokkr_api::why::{Cause, Hop, StackWhy};
use brokkr_api::{SequenceId, StackId};
use brokkr_testkit::{Attempt, eventually};
use reqwest::Method;
use serde_json::{Value, json};

use super::{AGENTS, DEADLINE, submit_staged};
use crate::harness::{Agent, Harness, YAML};

/// A stack with a version that the first of four agents has.
struct Widened {
    harness: Harness,
    agents: Vec<Agent>,
    stack: StackId,
    version: SequenceId,
}

/// The targets before.
fn one() -> Value {
    json!({ "agents": [AGENTS[0]] })
}

fn all() -> Value {
    json!({ "selectors": ["env=prod"] })
}

impl Widened {
    async fn new() -> Result<Self> {
        let harness = Harness::open().await?;
        let mut agents = Vec::new();
        for name in AGENTS {
            agents.push(harness.agent(name, json!({ "env": "prod" })).await?);
        }
        let stack = harness.stack("web", one()).await?.id;
        let version = harness.submit("web", YAML).await?.sequence_id;
        agents[0].hold(&[stack]).await?;
        for agent in &agents {
            agent.poll().await?;
        }
        harness.store_polls().await?;
        let policy = json!({ "waves": [{ "size": "1" }, { "size": "100%" }], "soak_seconds": 0 });
        harness.admin.send(Method::PUT, "stacks/web/rollout-policy", &policy).await?.error_for_status()?;
        let widened = Self { harness, agents, stack, version };
        widened.report(0, version, Transition::Healthy).await?;
        Ok(widened)
    }

    /// Targets all agents, and returns the first of the others that gets the version.
    async fn widen(&self) -> Result<usize> {
        self.harness.target("web", all()).await?;
        let reached = self.wait_for(self.version, 2).await?;
        reached.into_iter().find(|agent| *agent != 0).context("a gained agent")
    }

    async fn target(&self, agent: usize) -> Result<Option<TargetStack>> {
        let envelope = self.agents[agent].poll().await?.envelope()?;
        Ok(envelope.stacks.into_iter().find(|target| target.stack_id == self.stack))
    }

    /// Returns the agents that this version is released to.
    async fn with(&self, version: SequenceId) -> Result<Vec<usize>> {
        let mut agents = Vec::new();
        for agent in 0..AGENTS.len() {
            let target = self.target(agent).await?;
            if target.is_some_and(|target| target.sequence_id == version && !target.withdrawn) {
                agents.push(agent);
            }
        }
        Ok(agents)
    }

    /// Waits until the version is released to this many agents.
    async fn wait_for(&self, version: SequenceId, count: usize) -> Result<Vec<usize>> {
        eventually(DEADLINE, &format!("{count} agents to get version {version}"), async || {
            match self.with(version).await {
                Ok(agents) if agents.len() == count => Attempt::Done(agents),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    /// Reports that each agent that gets the version is healthy, until all agents get it.
    async fn heal_until_all(&self, version: SequenceId) -> Result<()> {
        eventually(DEADLINE, "all agents to get the version", async || {
            let reached = self.with(version).await?;
            for agent in &reached {
                self.report(*agent, version, Transition::Healthy).await?;
            }
            anyhow::ensure!(reached.len() == AGENTS.len(), "only {reached:?}");
            Ok(())
        })
        .await
    }

    async fn report(
        &self,
        agent: usize,
        version: SequenceId,
        transition: Transition,
    ) -> Result<ReportReceipt> {
        let agent = &self.agents[agent];
        let report = agent.report(self.stack, version, transition, 1_760_000_000);
        Ok(agent.send_reports(&[report]).await?.error_for_status()?.json().await?)
    }

    /// Returns the rollouts of the stack, newest first.
    async fn rollouts(&self) -> Result<Vec<Rollout>> {
        let page: Page<Rollout> = self.harness.admin.get_json("rollouts?stack=web").await?;
        Ok(page.items)
    }

    async fn wait_for_state(&self, wanted: RolloutState) -> Result<Rollout> {
        eventually(DEADLINE, &format!("the rollout to be {wanted}"), async || {
            let rollout = self.rollouts().await.map(|rollouts| rollouts.into_iter().next());
            match rollout {
                Ok(Some(rollout)) if rollout.state == wanted => Attempt::Done(rollout),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    async fn why(&self, agent: usize) -> Result<StackWhy> {
        self.harness.admin.get_json(&format!("stacks/web/agents/{}/why", AGENTS[agent])).await
    }

    /// Returns a gained agent other than this one.
    fn other_than(agent: usize) -> usize {
        if agent == 1 { 2 } else { 1 }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_gained_agents_get_the_version_in_waves_and_completion_changes_nothing() -> Result<()> {
    let fleet = Widened::new().await?;
    let canary = fleet.widen().await?;
    let rollout = fleet.wait_for_state(RolloutState::Running).await?;
    assert_eq!((rollout.widens, rollout.base_sequence_id), (Some(fleet.version), None));
    assert!(rollout.sequence_id > fleet.version && rollout.waves == 2, "{rollout:?}");
    let waiting = Widened::other_than(canary);
    assert_eq!(fleet.target(waiting).await?, None);
    let broken = fleet.why(waiting).await?.broken.context("an explanation")?;
    assert_eq!((broken.hop, broken.cause), (Hop::Released, Cause::HeldBack), "{broken:?}");
    // J1: it was not released to it.
    let receipt = fleet.report(waiting, fleet.version, Transition::Healthy).await?;
    assert!(receipt.accepted.is_empty(), "{receipt:?}");

    // The same targets again change nothing.
    fleet.harness.target("web", all()).await?;
    assert_eq!(fleet.rollouts().await?[0].sequence_id, rollout.sequence_id);

    fleet.heal_until_all(fleet.version).await?;
    let reached = fleet.target(canary).await?;
    let completed = fleet.wait_for_state(RolloutState::Completed).await?;
    assert_eq!((completed.figures.members, completed.figures.healthy), (3, 3), "only the gained agents");
    assert_eq!(fleet.target(canary).await?, reached);
    assert_eq!(fleet.with(fleet.version).await?.len(), AGENTS.len());
    let stack: Stack = fleet.harness.admin.get_json("stacks/web").await?;
    assert_eq!((stack.sequence_id, stack.base_sequence_id), (Some(fleet.version), None));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_version_that_fails_on_the_first_gained_agent_reaches_no_other() -> Result<()> {
    let mut fleet = Widened::new().await?;
    let canary = fleet.widen().await?;
    let stack = fleet.stack;
    fleet.agents[canary].hold(&[stack]).await?;
    fleet.report(canary, fleet.version, Transition::Failed).await?;
    let stopped = fleet.wait_for_state(RolloutState::Stopped).await?;
    assert_eq!((stopped.figures.members, stopped.figures.released, stopped.figures.bad), (3, 1, 1));
    assert_eq!(fleet.wait_for(fleet.version, 1).await?, [0], "the agent that had it is not concerned");
    let kept = fleet.target(canary).await?.context("it has begun the version, and keeps it")?;
    assert_eq!((kept.sequence_id, kept.withdrawn), (fleet.version, true));
    let waiting = Widened::other_than(canary);
    assert_eq!(fleet.target(waiting).await?, None);
    let broken = fleet.why(waiting).await?.broken.context("an explanation")?;
    assert_eq!((broken.hop, broken.cause), (Hop::Released, Cause::RolloutStopped), "{broken:?}");

    // It is resumed like the rollout of a version.
    let path = format!("rollouts/{}/resume", stopped.sequence_id);
    fleet.harness.admin.send(Method::POST, &path, &json!({})).await?.error_for_status()?;
    fleet.wait_for(fleet.version, 3).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_new_version_supersedes_a_widening_and_reaches_all_agents_in_its_waves() -> Result<()> {
    let fleet = Widened::new().await?;
    fleet.widen().await?;
    let widening = fleet.rollouts().await?[0].sequence_id;
    let second =
        submit_staged(&fleet.harness, "web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    let superseded: Rollout = fleet.harness.admin.get_json(&format!("rollouts/{widening}")).await?;
    assert_eq!((superseded.state, superseded.widens), (RolloutState::Superseded, Some(fleet.version)));
    fleet.wait_for(second, 1).await?;
    // Only the agent that had the stack before may still get the version before.
    let with_first = fleet.with(fleet.version).await?;
    assert!(with_first.iter().all(|agent| *agent == 0), "{with_first:?}");
    fleet.heal_until_all(second).await?;
    let completed = fleet.wait_for_state(RolloutState::Completed).await?;
    assert_eq!((completed.sequence_id, completed.figures.members), (second, 4));
    assert_eq!(fleet.with(second).await?.len(), AGENTS.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_agents_gained_during_a_rollout_get_only_its_version() -> Result<()> {
    let fleet = Widened::new().await?;
    let second =
        submit_staged(&fleet.harness, "web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    fleet.wait_for(second, 1).await?;
    fleet.harness.target("web", all()).await?;
    for agent in 1..AGENTS.len() {
        let target = fleet.target(agent).await?;
        assert!(target.as_ref().is_none_or(|target| target.sequence_id == second), "{target:?}");
    }
    // The rollout under way is the one of the version.
    let rollouts = fleet.rollouts().await?;
    assert_eq!(rollouts.iter().map(|rollout| rollout.sequence_id).collect::<Vec<_>>(), [second]);
    fleet.heal_until_all(second).await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_few_gained_agents_get_the_version_at_once_and_the_earlier_targets_end_a_widening() -> Result<()> {
    let fleet = Widened::new().await?;
    fleet.widen().await?;
    let widening = fleet.rollouts().await?[0].sequence_id;
    fleet.harness.target("web", one()).await?;
    let ended: Rollout = fleet.harness.admin.get_json(&format!("rollouts/{widening}")).await?;
    assert_eq!(ended.state, RolloutState::Superseded);
    assert_eq!(fleet.with(fleet.version).await?, [0]);

    fleet.harness.target("web", json!({ "agents": [AGENTS[0], AGENTS[1]] })).await?;
    assert_eq!(fleet.with(fleet.version).await?, [0, 1], "one agent may be in flight");
    assert_eq!(fleet.rollouts().await?.len(), 1, "without another rollout");
    Ok(())
}

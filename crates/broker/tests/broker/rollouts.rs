//! The engine of rollouts with a real database, real polls and reports: agents get a version in waves, and a bad version stops.

mod deletion;
mod lease;
mod policies;
mod rolling_back;
mod suspended;
mod widening;
mod windows;

use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::report::{ReportReceipt, Transition};
use brokkr_api::rollouts::{Rollout, RolloutDecision, RolloutState, StopReason};
use brokkr_api::stacks::Stack;
use brokkr_api::status::State;
use brokkr_api::why::{Cause, Hop, StackWhy};
use brokkr_api::{SequenceId, StackId};
use brokkr_testkit::{Attempt, eventually};
use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use crate::harness::{Agent, Harness, YAML};

const DEADLINE: Duration = Duration::from_secs(60);
const AGENTS: [&str; 4] = ["shop-1", "shop-2", "shop-3", "shop-4"];

/// A stack whose second version is being rolled out to four agents that have the first one.
struct Fleet {
    harness: Harness,
    agents: Vec<Agent>,
    stack: StackId,
    first: SequenceId,
    second: SequenceId,
}

/// Submits a version that is rolled out, in two waves.
async fn submit_staged(harness: &Harness, stack: &str, yaml: &str) -> Result<DeploymentObject> {
    let path = format!("stacks/{stack}/deployment-objects?waves=1,100%25&soak_seconds=0");
    let request = harness.admin.request(Method::POST, &path).body(yaml.to_owned());
    Ok(harness.admin.write(request).await?.error_for_status()?.json().await?)
}

impl Fleet {
    async fn new() -> Result<Self> {
        let harness = Harness::open().await?;
        let mut agents = Vec::new();
        for name in AGENTS {
            agents.push(harness.agent(name, json!({ "env": "prod" })).await?);
        }
        let stack = harness.stack("web", json!({ "selectors": ["env=prod"] })).await?.id;
        let first = harness.submit("web", YAML).await?.sequence_id;
        for agent in &mut agents {
            agent.hold(&[stack]).await?;
            let healthy = agent.report(stack, first, Transition::Healthy, 1_750_000_000);
            agent.send_reports(&[healthy]).await?;
            agent.poll().await?;
        }
        harness.store_polls().await?;
        let second = submit_staged(&harness, "web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
        Ok(Self { harness, agents, stack, first, second })
    }

    /// Returns the agents that get the second version.
    async fn with_second(&self) -> Result<Vec<usize>> {
        let mut agents = Vec::new();
        for (number, agent) in self.agents.iter().enumerate() {
            let envelope = agent.poll().await?.envelope()?;
            match envelope.stacks.first().map(|stack| stack.sequence_id) {
                Some(version) if version == self.second => agents.push(number),
                version => assert_eq!(version, Some(self.first)),
            }
        }
        Ok(agents)
    }

    /// Waits until this many agents get the second version.
    async fn wait_for(&self, count: usize) -> Result<Vec<usize>> {
        eventually(DEADLINE, &format!("{count} agents to get the new version"), async || {
            match self.with_second().await {
                Ok(agents) if agents.len() == count => Attempt::Done(agents),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    /// Reports that each agent that gets the version is healthy, except these, until all agents get it: one after the other.
    async fn heal_until_all(&self, except: &[usize]) -> Result<()> {
        for count in except.len() + 1..=AGENTS.len() {
            for agent in self.wait_for(count).await? {
                if !except.contains(&agent) {
                    self.report(agent, Transition::Healthy).await?;
                }
            }
        }
        Ok(())
    }

    async fn why(&self, agent: usize) -> Result<StackWhy> {
        self.harness.admin.get_json(&format!("stacks/web/agents/{}/why", AGENTS[agent])).await
    }

    async fn report(&self, agent: usize, transition: Transition) -> Result<()> {
        let agent = &self.agents[agent];
        let report = agent.report(self.stack, self.second, transition, 1_760_000_000);
        agent.send_reports(&[report]).await?;
        Ok(())
    }

    async fn relabel(&self, agent: usize, labels: serde_json::Value) -> Result<()> {
        let path = format!("agents/{}", AGENTS[agent]);
        let labels = json!({ "labels": labels });
        self.harness.admin.send(Method::PATCH, &path, &labels).await?.error_for_status()?;
        Ok(())
    }

    async fn rollout(&self) -> Result<Rollout> {
        self.harness.admin.get_json(&format!("rollouts/{}", self.second)).await
    }

    async fn wait_for_state(&self, wanted: RolloutState) -> Result<Rollout> {
        eventually(DEADLINE, &format!("the rollout to be {wanted}"), async || match self.rollout().await {
            Ok(rollout) if rollout.state == wanted => Attempt::Done(rollout),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    async fn command(&self, command: &str) -> Result<Response> {
        let path = format!("rollouts/{}/{command}", self.second);
        self.harness.admin.send(Method::POST, &path, &json!({ "reason": "a test" })).await
    }

    /// Rolls out another stack to its end: the engine has looked at all rollouts several times then.
    async fn complete_another(&self) -> Result<()> {
        let stack = self.harness.stack("control", json!({ "agents": [AGENTS[0]] })).await?.id;
        let version = submit_staged(&self.harness, "control", YAML).await?.sequence_id;
        let agent = &self.agents[0];
        eventually(DEADLINE, "the other rollout to complete", async || {
            let report = agent.report(stack, version, Transition::Healthy, 1_760_000_000);
            agent.send_reports(&[report]).await?;
            let rollout: Rollout = self.harness.admin.get_json(&format!("rollouts/{version}")).await?;
            anyhow::ensure!(rollout.state == RolloutState::Completed, "{rollout:?}");
            Ok(())
        })
        .await
    }

    /// Returns an agent that does not get the version that is rolled out.
    fn other_than(agents: &[usize]) -> usize {
        (0..AGENTS.len()).find(|agent| !agents.contains(agent)).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_wave_begins_when_the_first_is_healthy_and_completion_changes_nothing() -> Result<()> {
    let fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    fleet.report(canary[0], Transition::Applied).await?;
    assert_eq!(fleet.with_second().await?, canary, "applied is not healthy");
    fleet.heal_until_all(&[]).await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    let stack: Stack = fleet.harness.admin.get_json("stacks/web").await?;
    assert_eq!(stack.sequence_id, Some(fleet.second));
    assert_eq!(fleet.with_second().await?.len(), 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_version_that_fails_on_the_first_agent_reaches_no_other() -> Result<()> {
    let fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    fleet.report(canary[0], Transition::Failed).await?;
    fleet.wait_for_state(RolloutState::Stopped).await?;
    assert_eq!(fleet.wait_for(0).await?, Vec::<usize>::new(), "the canary gets the version before, too");
    // It has begun the version: its reports count.
    fleet.report(canary[0], Transition::Degraded).await?;
    // Another agent does not: it never got the version (J1).
    let other = Fleet::other_than(&canary);
    let lie = fleet.agents[other].report(fleet.stack, fleet.second, Transition::Healthy, 1_760_000_000);
    let receipt: ReportReceipt = fleet.agents[other].send_reports(&[lie]).await?.json().await?;
    assert!(receipt.accepted.is_empty(), "{receipt:?}");

    let rollout = fleet.rollout().await?;
    assert_eq!(rollout.stop_reason, Some(StopReason::TooManyBad { bad: 1, allowed: 0 }));
    assert_eq!((rollout.figures.members, rollout.figures.released, rollout.figures.bad), (4, 1, 1));
    assert_eq!((rollout.wave, rollout.waves), (1, 2));
    let path = format!("rollouts/{}/decisions", fleet.second);
    let decisions: Page<RolloutDecision> = fleet.harness.admin.get_json(&path).await?;
    let steps: Vec<_> =
        decisions.items.iter().map(|step| (step.number, step.state, step.figures.bad)).collect();
    assert_eq!(steps, [(1, RolloutState::Stopped, 1), (0, RolloutState::Running, 0)]);
    assert_eq!(decisions.items[0].stop_reason, rollout.stop_reason);
    let broken = fleet.why(other).await?.broken.context("an explanation")?;
    assert_eq!((broken.hop, broken.cause), (Hop::Released, Cause::RolloutStopped), "{broken:?}");
    assert!(broken.message.to_string().contains("1 agent is bad, 0 allowed"), "{broken:?}");
    // The canary keeps the version, so that its state is what it reports about that one.
    let why = fleet.why(canary[0]).await?;
    assert_eq!((why.state, why.sequence_id), (State::Degraded, Some(fleet.second)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_paused_rollout_reaches_no_further_agent_until_it_is_resumed() -> Result<()> {
    let fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    let paused: Rollout = fleet.command("pause").await?.error_for_status()?.json().await?;
    assert_eq!(paused.state, RolloutState::Paused);
    fleet.report(canary[0], Transition::Healthy).await?;
    let broken = fleet.why(Fleet::other_than(&canary)).await?.broken.context("an explanation")?;
    assert_eq!(broken.cause, Cause::RolloutPaused);
    assert_eq!(fleet.command("pause").await?.status(), StatusCode::CONFLICT);
    fleet.complete_another().await?;
    // The first agent has begun the version, and goes on. An agent that has not must not begin it.
    assert_eq!(fleet.with_second().await?, Vec::<usize>::new());
    fleet.command("resume").await?.error_for_status()?;
    fleet.wait_for(2).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_newer_version_supersedes_a_rollout_and_begins_with_the_same_agents() -> Result<()> {
    let mut fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    let before = fleet.second;
    fleet.second =
        submit_staged(&fleet.harness, "web", &YAML.replace("greeting", "welcome")).await?.sequence_id;
    assert_eq!(fleet.wait_for(1).await?, canary);
    let superseded: Rollout = fleet.harness.admin.get_json(&format!("rollouts/{before}")).await?;
    assert_eq!(superseded.state, RolloutState::Superseded);
    let active: Page<Rollout> = fleet.harness.admin.get_json("rollouts?active=true&stack=web").await?;
    assert_eq!(active.items.iter().map(|rollout| rollout.sequence_id).collect::<Vec<_>>(), [fleet.second]);
    assert_eq!(active.items[0].base_sequence_id, Some(fleet.first));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_the_right_to_report_about_a_version_when_it_gets_other_labels() -> Result<()> {
    let mut fleet = Fleet::new().await?;
    let canary = 2;
    fleet.relabel(canary, json!({ "env": "prod", "ring": "0" })).await?;
    let policy = json!({ "waves": [{ "match": "ring=0", "size": "100%" }], "soak_seconds": 0 });
    let path = "stacks/web/rollout-policy";
    fleet.harness.admin.send(Method::PUT, path, &policy).await?.error_for_status()?;
    let third = fleet.harness.submit("web", &YAML.replace("greeting", "welcome")).await?.sequence_id;
    fleet.second = third;
    assert_eq!(fleet.wait_for(1).await?, [canary], "{:?}", fleet.rollout().await?);
    fleet.report(canary, Transition::Applied).await?;
    fleet.relabel(canary, json!({ "env": "prod" })).await?;
    fleet.wait_for(0).await?;
    let agent = &fleet.agents[canary];
    let report = agent.report(fleet.stack, third, Transition::Degraded, 1_760_000_001);
    let receipt: ReportReceipt = agent.send_reports(&[report]).await?.json().await?;
    assert_eq!(receipt.accepted.len(), 1, "{receipt:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wave_that_selects_no_agent_is_left_out() -> Result<()> {
    let mut fleet = Fleet::new().await?;
    let policy = json!({ "waves": [{ "match": "ring=0", "size": "100%" }], "soak_seconds": 0 });
    let path = "stacks/web/rollout-policy";
    fleet.harness.admin.send(Method::PUT, path, &policy).await?.error_for_status()?;
    let third = fleet.harness.submit("web", &YAML.replace("greeting", "welcome")).await?.sequence_id;
    fleet.second = third;
    fleet.wait_for(1).await?;
    assert_eq!(fleet.rollout().await?.wave, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_a_stopped_rollout_accepts_the_agents_that_have_failed() -> Result<()> {
    let fleet = Fleet::new().await?;
    let canary = fleet.wait_for(1).await?;
    fleet.report(canary[0], Transition::Failed).await?;
    fleet.wait_for_state(RolloutState::Stopped).await?;
    fleet.command("resume").await?.error_for_status()?;
    // Another agent proves the version in its place.
    fleet.heal_until_all(&canary).await?;
    let rollout = fleet.wait_for_state(RolloutState::Completed).await?;
    assert_eq!((rollout.figures.healthy, rollout.figures.bad), (3, 1));
    Ok(())
}

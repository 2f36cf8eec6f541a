//! Maintenance windows, freezes and gates.

use anyhow::{Context as _, Result};
use brokkr_api::envelope::TargetStack;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Pending, Rollout, RolloutState, StopReason};
use brokkr_api::tokens::{NewApiToken, Role};
use brokkr_api::why::Cause;
use brokkr_testkit::{Attempt, eventually};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{AGENTS, DEADLINE, Fleet};
use crate::harness::{Caller, Harness, YAML};

/// A freeze of agents with these labels, from an hour ago.
fn freeze(selector: &str, until: Timestamp) -> Value {
    let from = Timestamp::now() - 1.hour();
    let rule = json!({ "kind": "freeze", "from": from, "until": until, "reason": "stocktaking" });
    json!({ "selector": selector, "rule": rule })
}

async fn put(harness: &Harness, name: &str, window: &Value) -> Result<StatusCode> {
    Ok(harness.admin.send(Method::PUT, &format!("windows/{name}"), window).await?.status())
}

impl Fleet {
    /// Submits a third version in the same waves; it takes the place of the second one.
    async fn submit_third(&mut self, query: &str) -> Result<()> {
        let path = format!("stacks/web/deployment-objects?{query}");
        let yaml = YAML.replace("greeting", "welcome");
        let request = self.harness.admin.request(Method::POST, &path).body(yaml);
        let object: DeploymentObject =
            self.harness.admin.write(request).await?.error_for_status()?.json().await?;
        (self.first, self.second) = (self.second, object.sequence_id);
        Ok(())
    }

    async fn completed() -> Result<Self> {
        let fleet = Self::new().await?;
        fleet.heal_until_all(&[]).await?;
        fleet.wait_for_state(RolloutState::Completed).await?;
        Ok(fleet)
    }

    async fn target(&self, agent: usize) -> Result<TargetStack> {
        self.agents[agent].poll().await?.envelope()?.stacks.into_iter().next().context("it has the stack")
    }

    /// Reports that each agent that gets the version is healthy, until all agents get it.
    async fn heal_all(&self) -> Result<()> {
        eventually(DEADLINE, "all agents to get the new version", async || {
            let agents = self.with_second().await.unwrap_or_default();
            for agent in &agents {
                if let Err(error) = self.report(*agent, Transition::Healthy).await {
                    return Attempt::NotYet(error.to_string());
                }
            }
            if agents.len() == AGENTS.len() {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("{agents:?}"))
            }
        })
        .await
    }

    /// Waits until the rollout waits for this.
    async fn wait_for_pending(&self, is_it: impl Fn(&Pending) -> bool) -> Result<Rollout> {
        eventually(DEADLINE, "the rollout to wait", async || match self.rollout().await {
            Ok(rollout) if rollout.pending.as_ref().is_some_and(&is_it) => Attempt::Done(rollout),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_h10_in_a_freeze_a_version_is_released_only_to_others_and_why_names_it() -> Result<()> {
    let mut fleet = Fleet::completed().await?;
    fleet.relabel(2, json!({ "env": "prod", "site": "depot" })).await?;
    let far = Timestamp::now() + SignedDuration::from_hours(10);
    assert_eq!(put(&fleet.harness, "depots", &freeze("site=depot", far)).await?, StatusCode::CREATED);
    let schedule = fleet.target(2).await?.schedule.context("the agent checks before it begins")?;
    assert_eq!(schedule.freezes.len(), 1);
    assert_eq!(fleet.target(1).await?.schedule, None);

    fleet.submit_third("waves=1,100%25&soak_seconds=0").await?;
    for count in 1..=3 {
        for agent in fleet.wait_for(count).await? {
            assert_ne!(agent, 2, "it is frozen");
            fleet.report(agent, Transition::Healthy).await?;
        }
    }
    let rollout = fleet.wait_for_pending(|pending| matches!(pending, Pending::Window { .. })).await?;
    assert!(matches!(rollout.pending, Some(Pending::Window { agents: 1, opens_at: Some(_) })), "{rollout:?}");
    let broken = fleet.why(2).await?.broken.context("it waits")?;
    assert_eq!(broken.cause, Cause::WindowClosed, "{broken:?}");
    assert!(broken.message.to_string().contains("freeze depots (stocktaking)"), "{broken:?}");
    assert!(broken.message.to_string().contains("wave 2 of 2, released to 3 of 4 agents"), "{broken:?}");

    // The freeze ends: the rollout goes on by itself, and completes.
    let soon = Timestamp::now() + SignedDuration::from_secs(2);
    assert_eq!(put(&fleet.harness, "depots", &freeze("site=depot", soon)).await?, StatusCode::OK);
    fleet.wait_for(4).await?;
    assert!(Timestamp::now() >= soon, "not before the end");
    fleet.report(2, Transition::Healthy).await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_rollbacks_and_urgent_versions_do_not_wait_for_windows() -> Result<()> {
    let mut fleet = Fleet::completed().await?;
    let far = Timestamp::now() + SignedDuration::from_hours(10);
    put(&fleet.harness, "all", &freeze("*", far)).await?;
    fleet.submit_third("waves=1,100%25&soak_seconds=0").await?;
    let rollout = fleet.wait_for_pending(|pending| matches!(pending, Pending::Window { .. })).await?;
    assert_eq!(rollout.figures.released, 0, "no agent may begin");

    // Only an owner ignores a freeze.
    let deployer = fleet.harness.with_role(Role::Deployer).await?;
    let path = "stacks/web/deployment-objects?now=true&reason=emergency";
    let yaml = YAML.replace("greeting", "urgent");
    let request = deployer.request(Method::POST, path).body(yaml);
    assert_eq!(deployer.write(request).await?.status(), StatusCode::FORBIDDEN);
    fleet.submit_third("now=true&reason=emergency").await?;
    for agent in 0..AGENTS.len() {
        let target = fleet.target(agent).await?;
        assert_eq!((target.sequence_id, target.schedule), (fleet.second, None), "it begins at once");
        fleet.report(agent, Transition::Healthy).await?;
    }
    let rolled_back: DeploymentObject = {
        let request = json!({ "reason": "a test" });
        let response = fleet.harness.admin.send(Method::POST, "stacks/web/roll-back", &request).await?;
        response.error_for_status()?.json().await?
    };
    (fleet.first, fleet.second) = (fleet.second, rolled_back.sequence_id);
    fleet.wait_for(AGENTS.len()).await?;
    assert_eq!(fleet.target(0).await?.schedule, None, "it begins in the freeze");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_h8_a_freeze_that_is_deleted_releases_the_version_in_waves() -> Result<()> {
    let mut fleet = Fleet::completed().await?;
    let far = Timestamp::now() + SignedDuration::from_hours(10);
    put(&fleet.harness, "half", &freeze("env=prod", far)).await?;
    fleet.relabel(0, json!({ "env": "prod", "open": "yes" })).await?;
    fleet.submit_third("waves=1,100%25&soak_seconds=0").await?;
    fleet.wait_for_pending(|pending| matches!(pending, Pending::Window { .. })).await?;
    // A freeze that is set meanwhile does not change the order either.
    put(&fleet.harness, "later", &freeze("open=yes", far)).await?;
    for name in ["half", "later"] {
        let deleted =
            fleet.harness.admin.send(Method::DELETE, &format!("windows/{name}"), &json!({})).await?;
        assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    }
    let first = fleet.wait_for(1).await?;
    fleet.complete_another().await?;
    assert_eq!(fleet.with_second().await?, first, "the others wait until the first one is healthy");
    fleet.heal_all().await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_are_checked_and_only_admins_change_them() -> Result<()> {
    let harness = Harness::open().await?;
    let now = Timestamp::now();
    let weekly = |timezone: &str, minutes: u32| {
        let rule = json!({ "kind": "weekly", "timezone": timezone, "start": "22:00", "minutes": minutes });
        json!({ "selector": "*", "rule": rule })
    };
    let of_none = json!({ "project": "none", "selector": "*", "rule": weekly("UTC", 60)["rule"] });
    for (window, status) in [
        (weekly("Europe/Berlin", 60), StatusCode::CREATED),
        (weekly("Europe/Atlantis", 60), StatusCode::UNPROCESSABLE_ENTITY),
        (weekly("UTC", 0), StatusCode::UNPROCESSABLE_ENTITY),
        (freeze("*", now - 2.hours()), StatusCode::UNPROCESSABLE_ENTITY),
        (of_none, StatusCode::NOT_FOUND),
    ] {
        assert_eq!(put(&harness, "night", &window).await?, status, "{window}");
    }
    let owner = harness.with_role(Role::Owner).await?;
    let refused = owner.send(Method::PUT, "windows/night", &weekly("UTC", 60)).await?;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let deleted = harness.admin.send(Method::DELETE, "windows/night", &json!({})).await?;
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    Ok(())
}

/// Returns an owner of the project, and the path of its token.
async fn owner(harness: &Harness, name: &str) -> Result<(Caller, String)> {
    let wanted = json!({ "name": name, "role": "owner" });
    let made = harness.admin.send(Method::POST, "api-tokens", &wanted).await?.error_for_status()?;
    let made: NewApiToken = made.json().await?;
    Ok((harness.admin.with_token(made.token), format!("api-tokens/{}", made.info.id)))
}

/// A policy with a gate before the second wave.
fn gated(gate: &Value) -> Value {
    json!({ "waves": [{ "size": "1" }, { "size": "100%", "gate": gate }], "soak_seconds": 0 })
}

/// Returns a fleet with a rollout that waits at its gate.
async fn at_the_gate(gate: &Value) -> Result<Fleet> {
    let mut fleet = Fleet::completed().await?;
    let put = fleet.harness.admin.send(Method::PUT, "stacks/web/rollout-policy", &gated(gate)).await?;
    put.error_for_status()?;
    fleet.submit_third("").await?;
    let canary = fleet.wait_for(1).await?[0];
    fleet.report(canary, Transition::Healthy).await?;
    fleet.wait_for_state(RolloutState::Gated).await?;
    Ok(fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_wave_with_a_gate_begins_when_enough_others_have_approved_it() -> Result<()> {
    let fleet = at_the_gate(&json!({ "approvals": 2, "role": "owner", "not_author": true })).await?;
    let rollout = fleet.rollout().await?;
    assert_eq!(rollout.pending, Some(Pending::Gate { given: 0, needed: 2 }), "{rollout:?}");
    let mut causes = Vec::new();
    for agent in 0..AGENTS.len() {
        causes.extend(fleet.why(agent).await?.broken.map(|broken| broken.cause));
    }
    assert_eq!(causes, [Cause::GateClosed; 3]);

    let path = format!("rollouts/{}/approve", fleet.second);
    let approve = async |token: &Caller| -> Result<StatusCode> {
        Ok(token.send(Method::POST, &path, &json!({})).await?.status())
    };
    assert_eq!(approve(&fleet.harness.admin).await?, StatusCode::FORBIDDEN, "it has submitted the version");
    let deployer = fleet.harness.with_role(Role::Deployer).await?;
    assert_eq!(approve(&deployer).await?, StatusCode::FORBIDDEN);
    let skip = format!("rollouts/{}/skip", fleet.second);
    let skipped = deployer.send(Method::POST, &skip, &json!({ "reason": "hurry" })).await?;
    assert_eq!(skipped.status(), StatusCode::FORBIDDEN, "that would be a way around the gate");
    for (path, body) in [
        (format!("rollouts/{}/promote", fleet.second), json!({ "reason": "hurry" })),
        (format!("rollouts/{}/pause", fleet.second), json!({})),
        (format!("rollouts/{}/resume", fleet.second), json!({})),
        (format!("rollouts/{}/promote", fleet.second), json!({ "reason": "hurry" })),
    ] {
        let status = deployer.send(Method::POST, &path, &body).await?.status();
        assert_eq!(status == StatusCode::CONFLICT, path.ends_with("promote"), "{path}: {status}");
    }
    fleet.wait_for_state(RolloutState::Gated).await?;
    for query in ["waves=100%25", "now=true&reason=hurry"] {
        let path = format!("stacks/web/deployment-objects?{query}");
        let request = deployer.request(Method::POST, &path).body(YAML.replace("greeting", "sneaked"));
        let status = deployer.write(request).await?.status();
        assert_eq!(status, StatusCode::FORBIDDEN, "a version without the gate");
    }
    let ((ana, _), (ben, _)) = (owner(&fleet.harness, "ana").await?, owner(&fleet.harness, "ben").await?);
    for _ in 0..2 {
        assert_eq!(approve(&ana).await?, StatusCode::OK);
        assert_eq!(fleet.rollout().await?.state, RolloutState::Gated, "one token approves once");
    }
    assert_eq!(approve(&ben).await?, StatusCode::OK);
    fleet.heal_all().await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    assert_eq!(approve(&ben).await?, StatusCode::CONFLICT, "it has ended");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_for_one_wave_and_counts_while_its_token_is_valid() -> Result<()> {
    let fleet = at_the_gate(&json!({ "approvals": 2, "role": "owner" })).await?;
    let (ana, token) = owner(&fleet.harness, "ana").await?;
    let approve = async |caller: &Caller, wave: u32| -> Result<StatusCode> {
        let path = format!("rollouts/{}/approve", fleet.second);
        Ok(caller.send(Method::POST, &path, &json!({ "wave": wave })).await?.status())
    };
    assert_eq!(approve(&ana, 3).await?, StatusCode::CONFLICT, "the rollout is at another wave");
    assert_eq!(approve(&ana, 2).await?, StatusCode::OK);
    fleet.harness.admin.send(Method::DELETE, &token, &json!({})).await?.error_for_status()?;
    let (ben, _) = owner(&fleet.harness, "ben").await?;
    assert_eq!(approve(&ben, 2).await?, StatusCode::OK);
    assert_eq!(fleet.rollout().await?.state, RolloutState::Gated, "the token of ana was revoked");
    assert_eq!(approve(&fleet.harness.admin, 2).await?, StatusCode::OK);
    fleet.heal_all().await?;
    fleet.wait_for_state(RolloutState::Completed).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_denied_or_not_answered_stops_the_rollout() -> Result<()> {
    let fleet = at_the_gate(&json!({})).await?;
    fleet.command("deny").await?.error_for_status()?;
    let rollout = fleet.rollout().await?;
    assert_eq!(rollout.state, RolloutState::Stopped);
    assert!(matches!(rollout.stop_reason, Some(StopReason::Denied { .. })), "{rollout:?}");
    // It can be resumed, and then asks again.
    fleet.command("resume").await?.error_for_status()?;
    fleet.wait_for_state(RolloutState::Gated).await?;
    fleet.command("approve").await?.error_for_status()?;
    fleet.heal_all().await?;

    let fleet = at_the_gate(&json!({ "timeout_seconds": 1 })).await?;
    let rollout = fleet.wait_for_state(RolloutState::Stopped).await?;
    assert_eq!(rollout.stop_reason, Some(StopReason::GateTimedOut { wave: 2 }));
    // It is withdrawn. The replica learns of it shortly after the database.
    fleet.wait_for(0).await?;
    Ok(())
}

//! The policies of rollouts: what is built in, and which scope wins.

use anyhow::Result;
use brokkr_api::page::Page;
use brokkr_api::rollouts::{Rollout, RolloutPolicies, RolloutPolicy, RolloutState, Share};
use brokkr_api::status::StackStatus;
use brokkr_api::tokens::Role;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{AGENTS, Fleet, submit_staged};
use crate::harness::{Harness, YAML};

async fn put(harness: &Harness, path: &str, policy: serde_json::Value) -> Result<StatusCode> {
    Ok(harness.admin.send(Method::PUT, &format!("{path}rollout-policy"), &policy).await?.status())
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_without_any_policy_versions_are_rolled_out_in_waves() -> Result<()> {
    let harness = Harness::open().await?;
    // Those of other tests are delivered at once.
    put(&harness, "", json!({})).await?;
    for name in AGENTS {
        harness.agent(name, json!({ "env": "prod" })).await?;
    }
    harness.stack("web", json!({ "selectors": ["env=prod"] })).await?;
    let policies: RolloutPolicies = harness.admin.get_json("stacks/web/rollout-policy").await?;
    let waves: Vec<Share> = policies.effective.waves.iter().flatten().map(|wave| wave.size).collect();
    let sizes = [Share::Count(1), Share::Percent(1), Share::Percent(10), Share::Percent(50), Share::ALL];
    assert_eq!((policies.effective.staged, waves.as_slice()), (Some(true), &sizes[..]));
    let first = harness.submit("web", YAML).await?.sequence_id;
    let rollout: Rollout = harness.admin.get_json(&format!("rollouts/{first}")).await?;
    assert_eq!(rollout.state, RolloutState::Running);
    assert_eq!(rollout.policy.soak_seconds, Some(0), "a first version does not soak");
    // Agents that do not get the first version yet are shown, too.
    let status: Page<StackStatus> = harness.admin.get_json("stacks/web/status").await?;
    assert_eq!(status.items.len(), AGENTS.len());
    assert!(status.items.iter().all(|row| row.wanted_sequence_id == Some(first)), "{status:?}");
    let second = harness.submit("web", &YAML.replace("greeting", "farewell")).await?.sequence_id;
    let rollout: Rollout = harness.admin.get_json(&format!("rollouts/{second}")).await?;
    assert_eq!(rollout.base_sequence_id, None, "the first one has not reached every agent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_the_narrowest_policy_wins_and_the_rollout_keeps_it() -> Result<()> {
    let fleet = Fleet::new().await?;
    let harness = &fleet.harness;
    put(harness, "", json!({ "soak_seconds": 7, "max_bad_percent": 50, "min_healthy_percent": 50 })).await?;
    put(harness, "projects/default/", json!({ "max_bad_percent": 30, "max_in_flight": "25%" })).await?;
    put(harness, "stacks/web/", json!({ "max_in_flight": "3" })).await?;
    let version = submit_staged(harness, "web", &YAML.replace("greeting", "welcome")).await?.sequence_id;
    let policy = async || -> Result<RolloutPolicy> {
        let rollout: Rollout = harness.admin.get_json(&format!("rollouts/{version}")).await?;
        Ok(rollout.policy)
    };
    let effective = policy().await?;
    assert_eq!(effective.soak_seconds, Some(0), "of the submission");
    assert_eq!(effective.max_in_flight, Some(Share::Count(3)), "of the stack");
    assert_eq!(effective.max_bad_percent, Some(30), "of the project");
    assert_eq!(effective.min_healthy_percent, Some(50), "of the installation");
    put(harness, "stacks/web/", json!({ "max_in_flight": "1" })).await?;
    assert_eq!(policy().await?, effective, "it does not change while the rollout lasts");
    assert_eq!(put(harness, "stacks/web/", json!({ "waves": [] })).await?, StatusCode::UNPROCESSABLE_ENTITY);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deployers_act_on_rollouts_and_owners_set_policies() -> Result<()> {
    let fleet = Fleet::new().await?;
    let deployer = fleet.harness.with_role(Role::Deployer).await?;
    let path = format!("rollouts/{}/pause", fleet.second);
    assert_eq!(deployer.send(Method::POST, &path, &json!({})).await?.status(), StatusCode::OK);
    let policy = json!({ "soak_seconds": 0 });
    let refused = deployer.send(Method::PUT, "stacks/web/rollout-policy", &policy).await?;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let owner = fleet.harness.with_role(Role::Owner).await?;
    let accepted = owner.send(Method::PUT, "stacks/web/rollout-policy", &policy).await?;
    assert_eq!(accepted.status(), StatusCode::OK);
    let refused = owner.send(Method::PUT, "rollout-policy", &policy).await?;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    Ok(())
}

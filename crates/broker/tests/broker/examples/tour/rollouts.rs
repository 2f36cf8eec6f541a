//! A new version of another stack reaches one of its two clusters, and its rollout is paused.

use anyhow::{Result, ensure};
use brokkr_api::rollouts::{Pending, Rollout};
use brokkr_api::stacks::Stack;
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::{from_value, json};

use super::{SOON, Tour, manifest, submit};
use crate::harness::{Caller, read};

pub async fn walk(tour: &Tour, owner: &Caller) -> Result<()> {
    owner.send(Method::PUT, "stacks/till", &json!({})).await?.error_for_status()?;
    let targets = json!({ "selectors": ["env=prod"] });
    let _: Stack = read(owner.send(Method::PUT, "stacks/till/targets", &targets).await?).await?;
    submit(owner, "till", &manifest("till", "2.0.0")).await?;
    tour.put(&tour.ops, "rollout-policy", json!({ "soak_seconds": 900 })).await?;
    tour.put(owner, "projects/shop/rollout-policy", json!({ "max_bad_percent": 1 })).await?;
    let waves = json!([{ "match": "region=us", "size": "1" }, { "size": "100%" }]);
    tour.put(owner, "stacks/till/rollout-policy", json!({ "waves": waves })).await?;
    tour.get(owner, "rollout-policy").await?;
    tour.get(owner, "stacks/till/rollout-policy").await?;

    tour.harness.store_polls().await?;
    let version = submit(owner, "till", &manifest("till", "2.1.0")).await?.sequence_id;
    let path = format!("rollouts/{version}");
    // From here on, nothing changes until the cluster reports.
    eventually(SOON, "the first wave to begin", async || {
        let rollout: Rollout = owner.get_json(&path).await?;
        ensure!(matches!(rollout.pending, Some(Pending::Healthy { .. })), "{rollout:?}");
        Ok(())
    })
    .await?;
    tour.get(owner, "rollouts?active=true").await?;
    tour.get(owner, &path).await?;
    let reason = json!({ "reason": "the shops are open" });
    let paused: Rollout = from_value(tour.post(owner, &format!("{path}/pause"), reason).await?)?;
    ensure!(paused.figures.released == 1, "{paused:?}");
    tour.get(owner, &format!("{path}/decisions")).await?;
    // The other chapters are about versions that every agent gets.
    for path in ["rollout-policy", "projects/shop/rollout-policy"] {
        tour.ops.send(Method::PUT, path, &json!({})).await?.error_for_status()?;
    }
    Ok(())
}

//! A cluster is offered a new image of its agent, begins it, and the upgrade is paused.

use anyhow::{Result, ensure};
use brokkr_api::protocol::header;
use brokkr_api::rollouts::Pending;
use brokkr_api::upgrades::AgentUpgrade;
use brokkr_testkit::eventually;
use reqwest::Method;
use serde_json::{from_value, json};

use super::{SOON, Tour};
use crate::harness::Agent;

pub async fn walk(tour: &Tour, us: &Agent) -> Result<()> {
    let caller = us.caller();
    // The owner of the cluster allows upgrades.
    let session = json!({ "count": us.session.count, "instance": us.session.instance });
    let request = caller.request(Method::POST, &us.path("session")).json(&session);
    caller.write(request.header(header::CAPABILITIES, "upgrade")).await?.error_for_status()?;

    let image = format!("registry.example.com/brokkr-agent@sha256:{}", "0a".repeat(32));
    let policy = json!({ "waves": [{ "size": "100%" }], "soak_seconds": 600 });
    let wanted = json!({ "image": image, "version": "1.1.0", "selector": "region=us", "policy": policy });
    let upgrade: AgentUpgrade = from_value(tour.post(&tour.ops, "agent-upgrades", wanted).await?)?;
    eventually(SOON, "the image to be offered", async || {
        let status = caller.get(&us.path("upgrade")).await?.status();
        ensure!(status.is_success(), "{status}");
        Ok(())
    })
    .await?;
    tour.get(&caller, &us.path("upgrade")).await?;
    let begun = json!({ "id": upgrade.id, "step": "begun", "version": "1.0.0", "at": tour.now() });
    tour.post(&caller, &us.path("upgrade"), begun).await?;

    let path = format!("agent-upgrades/{}", upgrade.id);
    // From here on, nothing changes until the agent reports.
    eventually(SOON, "the agent to be in flight", async || {
        let upgrade: AgentUpgrade = tour.ops.get_json(&path).await?;
        let is_waiting = matches!(upgrade.pending, Some(Pending::Healthy { .. }));
        ensure!(is_waiting && upgrade.figures.in_flight == 1, "{upgrade:?}");
        Ok(())
    })
    .await?;
    tour.get(&tour.ops, "agent-upgrades").await?;
    tour.get(&tour.ops, &path).await?;
    tour.get(&tour.ops, &format!("{path}/agents")).await?;
    tour.post(&tour.ops, &format!("{path}/pause"), json!({ "reason": "the shops are open" })).await?;
    Ok(())
}

//! Roll-backs of a version that is being rolled out.

use anyhow::Result;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutState;
use brokkr_api::{ErrorCode, Problem};
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::Fleet;
use crate::harness::YAML;

impl Fleet {
    /// Rolls the stack back: from then on, the second version is the one of the roll-back.
    async fn roll_back(&mut self) -> Result<DeploymentObject> {
        let rolled = self.harness.admin.send(Method::POST, "stacks/web/roll-back", &json!({})).await?;
        let object: DeploymentObject = rolled.error_for_status()?.json().await?;
        self.second = object.sequence_id;
        Ok(object)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_a_roll_back_begins_with_the_agents_that_have_the_bad_version_and_bars_its_content() -> Result<()>
{
    let mut fleet = Fleet::new().await?;
    let superseded = fleet.second;
    let canary = 2;
    fleet.relabel(canary, json!({ "env": "prod", "ring": "0" })).await?;
    let policy = json!({ "waves": [{ "match": "ring=0", "size": "100%" }], "soak_seconds": 0 });
    fleet.harness.admin.send(Method::PUT, "stacks/web/rollout-policy", &policy).await?.error_for_status()?;
    let bad = YAML.replace("greeting", "welcome");
    fleet.second = fleet.harness.submit("web", &bad).await?.sequence_id;
    assert_eq!(fleet.wait_for(1).await?, [canary]);
    fleet.report(canary, Transition::Failed).await?;
    fleet.wait_for_state(RolloutState::Stopped).await?;

    let back = fleet.roll_back().await?;
    let history: Page<DeploymentObject> =
        fleet.harness.admin.get_json("stacks/web/deployment-objects").await?;
    let first = history.items.iter().find(|object| object.sequence_id == fleet.first);
    assert_eq!(Some(back.checksum), first.map(|first| first.checksum), "the last one that every agent had");
    assert_eq!(fleet.wait_for(1).await?, [canary], "it has the bad version");
    fleet.heal_until_all(&[]).await?;
    fleet.wait_for_state(RolloutState::Completed).await?;

    let request = fleet.harness.admin.request(Method::POST, "stacks/web/deployment-objects").body(bad);
    let refused: Problem = fleet.harness.admin.write(request).await?.json().await?;
    assert_eq!(refused.code, ErrorCode::BRK2011);
    let to = json!({ "to": superseded });
    let refused = fleet.harness.admin.send(Method::POST, "stacks/web/roll-back", &to).await?;
    assert_eq!(refused.status(), StatusCode::CONFLICT, "it never reached every agent");
    Ok(())
}

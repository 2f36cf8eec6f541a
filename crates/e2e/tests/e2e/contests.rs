//! Contested fields: counted, slowed down, and reported with the other manager and the field.

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

#[tokio::test]
async fn f2_a_contest_is_reported_with_the_other_manager_and_the_field_until_it_ends() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let rival = PatchParams { field_manager: Some("rival".into()), ..PatchParams::default() };
    let mut round = 0;
    let reported = eventually(WAIT_TIMEOUT, "the contest to be reported", async || {
        round += 1;
        let edit = json!({"data": {"value": format!("rival {round}")}});
        world.config_maps().patch("one", &rival, &Patch::Merge(edit)).await?;
        world.wait_for_value("one", "1").await?;
        let statuses = world.statuses("web").await?;
        let conditions = statuses[0]["conditions"].as_array().cloned().unwrap_or_default();
        let contested = conditions
            .into_iter()
            .find(|condition| condition["kind"] == "Contested" && condition["status"] == "True");
        contested.map_or_else(|| anyhow::bail!("round {round}: {statuses:?}"), Ok)
    })
    .await?;
    let message = reported["message"].as_str().unwrap_or_default();
    assert!(message.contains("rival") && message.contains(".data.value"), "{message}");
    assert!(message.contains("ConfigMap"), "{message}");
    let repaired = eventually(WAIT_TIMEOUT, "an event that names the contest", async || {
        match world.events("web").await {
            Ok(events) => match events.iter().find(|event| event["reason"] == "Contested") {
                Some(event) => Attempt::Done(event.clone()),
                None => Attempt::NotYet(format!("{events:?}")),
            },
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        }
    })
    .await?;
    assert!(repaired.to_string().contains("rival"), "{repaired}");
    Ok(())
}

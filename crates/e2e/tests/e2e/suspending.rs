//! F2 with suspensions: an edit survives for its time, everything else is repaired, and the edit is reported as a patch.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::eventually;
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

use crate::conditions::wait_for_condition;

const FOREVER: [&str; 4] = ["--for", "2h", "--reason", "debugging"];

async fn brokkr(world: &World, arguments: &[&str]) -> Result<()> {
    world.fleet.brokkr(arguments).await?.ok()?;
    Ok(())
}

/// Waits until the agent has reported this transition so often.
async fn wait_for_event(world: &World, transition: &str, count: usize) -> Result<Value> {
    eventually(WAIT_TIMEOUT, &format!("the agent to report {transition}"), async || {
        let events = world.events("web").await?;
        let found: Vec<_> = events.into_iter().filter(|event| event["transition"] == transition).collect();
        ensure!(found.len() == count, "{found:?}");
        found.into_iter().next().context("an event")
    })
    .await
}

/// The agent has looked at the stack since the edit: it has repaired another object that was changed after it.
async fn wait_for_repair(world: &World, name: &str) -> Result<()> {
    world.edit(name, "wrong").await?;
    world.wait_for_value(name, "right").await
}

#[tokio::test]
async fn f2_an_edit_of_a_suspended_object_survives_restarts_and_is_reported_at_the_end() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right"), ("two", "right")])).await?;
    let object = ["suspend", "web", "--agent", "shop-1", "--object", "ConfigMap/one"];
    brokkr(&world, &[&object[..], &FOREVER[..]].concat()).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.edit("one", "edited").await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));

    // Without the broker, and after a restart.
    world.fleet.broker.kill9();
    wait_for_repair(&world, "two").await?;
    world.agent.kill9();
    world.agent.start()?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));
    world.fleet.broker.start_again().await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));

    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "right").await?;
    let resumed = wait_for_event(&world, "resumed", 1).await?;
    let edited = &resumed["objects"][0];
    assert_eq!(edited["object"]["name"], "one", "{resumed}");
    assert_eq!(edited["details"]["patch"], json!({"data": {"value": "edited"}}), "{resumed}");
    let shown = world.fleet.brokkr(["stack", "suspensions", "web", "--diff"]).await?.ok()?.stdout;
    assert!(shown.contains("value: edited"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn f2_of_a_suspended_stack_nothing_changes_until_it_is_resumed() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right")])).await?;
    world.fleet.apply("other", "env=prod", &world.config_maps_yaml(&[("two", "right")])).await?;
    brokkr(&world, &[&["suspend", "web"][..], &FOREVER[..]].concat()).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.config_maps().delete("one", &Default::default()).await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "right"), ("new", "1")])).await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!((world.value("one").await?, world.value("new").await?), (None, None));
    let why = world.fleet.brokkr(["why", "web", "--agent", "shop-1"]).await?.stdout;
    assert!(why.contains("suspended here"), "{why}");
    wait_for_condition(&world, "web", "Suspended", "True").await?;
    brokkr(&world, &["resume", "web"]).await?;
    world.wait_for_value("one", "right").await?;
    world.wait_for_value("new", "1").await?;
    let resumed = wait_for_event(&world, "resumed", 1).await?;
    assert_eq!(resumed["objects"][0]["reason"], "DeletedByOthers", "{resumed}");
    Ok(())
}

#[tokio::test]
async fn f2_a_suspension_expires_at_the_agent_while_the_broker_is_down() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "right"), ("two", "right")])).await?;
    let suspend = ["suspend", "web", "--object", "ConfigMap/one", "--for", "15s", "--reason", "a test"];
    brokkr(&world, &suspend).await?;
    wait_for_event(&world, "suspended", 1).await?;
    world.fleet.broker.kill9();
    world.edit("one", "edited").await?;
    wait_for_repair(&world, "two").await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("edited"));
    world.wait_for_value("one", "right").await?;
    world.fleet.broker.start_again().await?;
    wait_for_event(&world, "resumed", 1).await?;
    Ok(())
}

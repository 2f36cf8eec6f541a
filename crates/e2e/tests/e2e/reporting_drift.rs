//! F2 with a stack whose drift is only reported: it is named and left, until the next version or until drift is repaired again.

use anyhow::Result;
use brokkr_testkit::world::World;
use brokkr_testkit::{Attempt, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::WAIT_TIMEOUT;

use crate::conditions::wait_for_condition;

/// Waits until the message of the condition Drifted has all these parts.
async fn wait_for_drift(world: &World, parts: &[&str]) -> Result<()> {
    eventually(WAIT_TIMEOUT, &format!("Drifted to name {parts:?}"), async || {
        let conditions = wait_for_condition(world, "web", "Drifted", "True").await;
        let text = conditions.map(|conditions| {
            let drifted = conditions.into_iter().find(|condition| condition["type"] == "Drifted");
            drifted.unwrap_or(Value::Null)["message"].to_string()
        });
        match text {
            Ok(text) if parts.iter().all(|part| text.contains(part)) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn f2_drift_of_a_stack_is_reported_and_not_repaired_until_it_is_switched_back() -> Result<()> {
    let world = World::start().await?;
    let objects = [("one", "right"), ("two", "right"), ("three", "right")];
    world.fleet.apply("web", "env=prod", &world.manifest(&objects)).await?;
    world.fleet.brokkr(["stack", "drift", "web", "report"]).await?.ok()?;
    // The agent has received it when it does not repair any more.
    eventually(WAIT_TIMEOUT, "an edit to survive", async || {
        let record = world.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "json"]).await;
        match record.and_then(|shown| shown.ok()?.json::<Value>()) {
            Ok(shown) if shown.to_string().contains(r#""drift":"report""#) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    let mark = world.cluster.audit().mark()?;
    world.edit("one", "edited").await?;
    world.config_maps().delete("two", &Default::default()).await?;
    wait_for_drift(&world, &["not repaired", "one: changed by others: data.value", "two: deleted by others"])
        .await?;
    let is_reported = |status: &Value| status["conditions"].to_string().contains("not repaired");
    world.wait_for_status("web", "shop-1", "drift to be reported", is_reported).await?;
    let events = world.events("web").await?;
    assert!(events.iter().any(|event| event["transition"] == "drifted"), "{events:?}");

    // Also after a restart without the broker.
    world.fleet.broker.kill9();
    world.agent.kill9();
    world.agent.start()?;
    world.edit("three", "edited").await?;
    wait_for_drift(&world, &["one: ", "two: ", "three: changed by others: data.value"]).await?;
    let mut writes = world.agent.requests(mark)?;
    writes.retain(|request| request.is_write() && request.namespace == world.namespace);
    assert!(writes.is_empty(), "{writes:#?}");
    world.fleet.broker.start_again().await?;

    // A new version is applied.
    let next = [("one", "next"), ("two", "next"), ("three", "next")];
    world.fleet.apply("web", "env=prod", &world.manifest(&next)).await?;
    for name in ["one", "two", "three"] {
        world.wait_for_value(name, "next").await?;
    }
    wait_for_condition(&world, "web", "Drifted", "False").await?;
    world.edit("one", "edited").await?;
    wait_for_drift(&world, &["one: changed by others: data.value"]).await?;
    world.fleet.brokkr(["stack", "drift", "web", "repair"]).await?.ok()?;
    world.wait_for_value("one", "next").await?;
    wait_for_condition(&world, "web", "Drifted", "False").await?;

    // Deletions are carried out.
    world.fleet.brokkr(["stack", "drift", "web", "report"]).await?.ok()?;
    let label = json!({ "data": { "value": "edited again" } });
    world.config_maps().patch("two", &PatchParams::default(), &Patch::Merge(label)).await?;
    world.fleet.delete("web").await?.ok()?;
    world.wait_until_gone("two").await?;
    Ok(())
}

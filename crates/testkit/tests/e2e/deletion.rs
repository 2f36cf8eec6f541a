//! E: deleting a stack, and proving that it is gone.

use anyhow::Result;
use brokkr_testkit::{Look, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::world::{PATIENCE, World};

/// f. stack deleted while the agent is down: cleaned when it returns, reported when seen gone.
#[tokio::test]
async fn e1_e2_e3_a_stack_deleted_while_the_agent_is_down_is_cleaned_when_it_returns() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap().to_owned();
    world.shop.kill9();
    world.fleet.brokkr(["delete", "stack", "web", "--yes"]).await?.ok()?;
    let history = world.fleet.get(&format!("/api/v1/stacks/{stack}/deployment-objects")).await?;
    assert_eq!(history["items"][0]["is_deletion_marker"], true, "E1: {history}");
    assert!(world.map("one").await?.is_some(), "nobody is there to delete it");

    world.shop.start()?;
    let status = world.status(&stack, "shop-1", "removed", |status| status["state"] == "removed").await?;
    assert!(world.map("one").await?.is_none(), "E2: gone when it is reported: {status}");
    assert!(world.map("two").await?.is_none());
    eventually(PATIENCE, "the record to go last", async || {
        match world.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "name"]).await {
            Ok(records) if !records.stdout.contains(&stack[24..]) => Look::Yes(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
}

/// f. a finalizer that blocks is named; success is told only when the resource is gone.
#[tokio::test]
async fn e2_a_finalizer_that_blocks_is_named_and_nothing_is_called_gone_before_it_is() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap().to_owned();
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.configmaps().patch("one", &PatchParams::default(), &Patch::Merge(hold)).await?;
    world.fleet.brokkr(["delete", "stack", "web", "--yes"]).await?.ok()?;
    let status = world.status(&stack, "shop-1", "blocked", |status| status["state"] == "blocked").await?;
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("example.com/hold") && message.contains("one"), "{status}");
    assert!(world.map("one").await?.is_some());

    let free = json!({"metadata": {"finalizers": null}});
    world.configmaps().patch("one", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.status(&stack, "shop-1", "removed", |status| status["state"] == "removed").await?;
    assert!(world.map("one").await?.is_none());
    let events = world.events(&stack).await?;
    let removed = events.iter().filter(|event| event["transition"] == "removed").count();
    assert_eq!(removed, 1, "{events:?}");
    Ok(())
}

/// A stack of the same name can come back at once, as a new stack.
#[tokio::test]
async fn a_name_can_be_used_again_after_its_stack_was_deleted() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    // Without waiting: the new stack meets what its predecessor has not let go of yet.
    world.fleet.brokkr(["delete", "stack", "web", "--yes"]).await?.ok()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "again")])).await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("again"));
    Ok(())
}

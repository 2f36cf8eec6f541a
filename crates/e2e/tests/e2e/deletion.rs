//! E: deleting a stack, and proving that it is gone.

use anyhow::{Context as _, Result};
use brokkr_testkit::{Attempt, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

/// A stack that is deleted while the agent is down is removed when the agent returns, and reported as removed
/// only when it is gone.
#[tokio::test]
async fn e1_e2_e3_a_stack_deleted_while_the_agent_is_down_is_cleaned_when_it_returns() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap().to_owned();
    world.agent.kill9();
    world.fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
    let history = world.fleet.get(&format!("/api/v1/stacks/{stack}/deployment-objects")).await?;
    assert_eq!(history["items"][0]["is_deletion_marker"], true, "E1: {history}");
    assert!(world.config_map("one").await?.is_some(), "the agent is down");

    world.agent.start()?;
    let status =
        world.wait_for_status(&stack, "shop-1", "removed", |status| status["state"] == "removed").await?;
    assert!(world.config_map("one").await?.is_none(), "E2: gone when it is reported: {status}");
    assert!(world.config_map("two").await?.is_none());
    eventually(WAIT_TIMEOUT, "the record to be deleted last", async || {
        match world.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "name"]).await {
            Ok(records) if !records.stdout.contains(&stack[24..]) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

/// A blocking finalizer is named; success is reported only when the resource is gone.
#[tokio::test]
async fn e2_a_blocking_finalizer_is_named_and_nothing_is_reported_gone_before_it_is() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap().to_owned();
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.config_maps().patch("one", &PatchParams::default(), &Patch::Merge(hold)).await?;
    world.fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
    let status =
        world.wait_for_status(&stack, "shop-1", "blocked", |status| status["state"] == "blocked").await?;
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("example.com/hold") && message.contains("one"), "{status}");
    assert!(world.config_map("one").await?.is_some());

    let free = json!({"metadata": {"finalizers": null}});
    world.config_maps().patch("one", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.wait_for_status(&stack, "shop-1", "removed", |status| status["state"] == "removed").await?;
    assert!(world.config_map("one").await?.is_none());
    let events = world.events(&stack).await?;
    let removed = events.iter().filter(|event| event["transition"] == "removed").count();
    assert_eq!(removed, 1, "{events:?}");
    Ok(())
}

/// A new stack can have the same name at once.
#[tokio::test]
async fn a_name_can_be_used_again_after_its_stack_was_deleted() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    // Without waiting: the new stack finds objects that its predecessor has not removed yet.
    world.fleet.brokkr(["stack", "delete", "web", "--yes"]).await?.ok()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "again")])).await?;
    assert_eq!(world.value("one").await?.as_deref(), Some("again"));
    Ok(())
}

#[tokio::test]
async fn e2_the_receipt_lists_removed_objects_with_their_uids() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let uid = world.config_map("two").await?.and_then(|map| map.metadata.uid).context("a uid")?;
    let gone = world.fleet.brokkr(["stack", "delete", "web", "--yes", "--wait", "-o", "json"]).await?.ok()?;
    let status = serde_json::from_str::<serde_json::Value>(&gone.stdout)?["status"][0].clone();
    assert_eq!(status["state"], "removed", "{status}");
    assert_eq!(status["total"], 3, "a Namespace and two ConfigMaps: {status}");
    let notes = status["objects"].as_array().context("notes")?;
    let two = notes.iter().find(|note| note["object"]["name"] == "two");
    let two = two.map(|note| (&note["reason"], &note["details"]["uid"]));
    assert_eq!(two, Some((&"Gone".into(), &uid.into())));
    Ok(())
}

#[tokio::test]
async fn c5_a_deletion_that_keeps_resources_removes_only_the_ownership_metadata() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let before = world.config_map("one").await?.context("what was applied")?;
    let kept = ["stack", "delete", "web", "--yes", "--keep-resources", "--wait"];
    let kept = world.fleet.brokkr(kept).await?.ok()?;
    assert!(kept.stdout.contains("removed"), "{kept:?}");
    let after = world.config_map("one").await?.context("it stays")?;
    assert_eq!((before.metadata.uid, before.data), (after.metadata.uid, after.data));
    let marked = |names: Option<std::collections::BTreeMap<String, String>>| {
        names.unwrap_or_default().into_keys().filter(|name| name.starts_with("brokkr.io/")).count()
    };
    assert_eq!((marked(after.metadata.labels), marked(after.metadata.annotations)), (0, 0));
    assert!(world.live_namespace().await?.is_some(), "the namespace stays too");
    Ok(())
}

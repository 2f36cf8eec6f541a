//! C: objects that existed before Brokkr.

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World, uid_and_version};

#[tokio::test]
async fn c1_an_unmarked_resource_is_adopted_and_keeps_fields_that_are_not_named() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    let theirs = world.apply_foreign("one").await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let map = world.config_map("one").await?.expect("one");
    assert_eq!(map.metadata.uid, theirs.metadata.uid, "adopted, not replaced");
    let data = map.data.unwrap_or_default();
    assert_eq!((data["mine"].as_str(), data["value"].as_str()), ("yes", "1"));
    Ok(())
}

/// C6: an adopted namespace outlives the stack; one that Brokkr created is deleted with it.
#[tokio::test]
async fn c6_a_namespace_that_was_there_before_is_released_and_a_created_one_goes() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.fleet.delete("web").await?;
    let namespace = world.live_namespace().await?.expect("still there");
    assert!(namespace.metadata.deletion_timestamp.is_none());
    let labels = namespace.metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key("brokkr.io/agent"), "released: {labels:?}");

    let other = World { namespace: format!("{}-b", world.namespace), ..world };
    other.fleet.apply("web", "env=prod", &other.manifest(&[("one", "1")])).await?;
    other.fleet.delete("web").await?;
    eventually(WAIT_TIMEOUT, "the created namespace to be gone", async || {
        match other.live_namespace().await {
            Ok(None) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

/// C4: an object of another stack is refused and reported, and keeps its owner.
#[tokio::test]
async fn c4_a_resource_of_another_stack_is_refused_and_reported() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("first", "env=prod", &world.manifest(&[("one", "first")])).await?;
    let yaml = brokkr_testkit::world::config_map_yaml(&world.namespace, "one", "second");
    world.fleet.submit("second", "env=prod", &yaml).await?;
    let status =
        world.wait_for_status("second", "shop-1", "failed", |status| status["state"] == "failed").await?;
    assert_eq!(status["reason"], "OwnedByOther", "{status}");
    assert_eq!(world.value("one").await?.as_deref(), Some("first"));
    Ok(())
}

/// C4: an object of another agent is refused before anything is written.
#[tokio::test]
async fn c4_a_resource_of_another_agent_is_refused_and_reported() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    let id = format!("/ConfigMap/{}/one", world.namespace);
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "one", "namespace": world.namespace,
            "labels": {"brokkr.io/agent": "0199aaaa-0000-7000-8000-000000000001"},
            "annotations": {"brokkr.io/stack-id": "0199aaaa-0000-7000-8000-000000000002", "brokkr.io/id": id},
        },
        "data": {"value": "theirs"},
    });
    let parameters = PatchParams::apply("another-agent");
    let before = world.config_maps().patch("one", &parameters, &Patch::Apply(&theirs)).await?;
    world
        .fleet
        .submit("web", "env=prod", &brokkr_testkit::world::config_map_yaml(&world.namespace, "one", "ours"))
        .await?;
    let status =
        world.wait_for_status("web", "shop-1", "failed", |status| status["state"] == "failed").await?;
    assert_eq!(status["reason"], "OwnedByOther", "{status}");
    assert_eq!(
        uid_and_version(&world.config_map("one").await?.expect("one")),
        uid_and_version(&before),
        "untouched"
    );
    Ok(())
}

/// C5: an object that a user has recreated under a managed name must not be deleted. The test recreates it
/// while its prune waits for approval: a restarted agent first repairs its last known state, and would adopt
/// an object that is still part of that state.
#[tokio::test]
async fn c5_a_recreated_object_without_ownership_metadata_is_never_deleted() -> Result<()> {
    let world = World::start().await?;
    let names: Vec<String> = (0..60).map(|number| format!("m{number}")).collect();
    let maps: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    world.fleet.apply("web", "env=prod", &world.manifest(&maps)).await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&maps[..1])).await?;
    let held = |status: &serde_json::Value| status["reason"] == "PruneNeedsApproval";
    let held = world.wait_for_status("web", "shop-1", "held", held).await?;
    world.agent.kill9();
    world.config_maps().delete("m59", &Default::default()).await?;
    let theirs = uid_and_version(&world.apply_foreign("m59").await?);
    world.agent.start()?;
    let approval = json!({"sequence_id": held["wanted_sequence_id"], "objects": 59});
    let approve = world.fleet.request(http::Method::POST, "/api/v1/stacks/web/prune-approvals");
    let answer = approve.json(&approval).send().await?;
    assert_eq!(answer.status(), http::StatusCode::CREATED, "{}", answer.text().await?);
    for name in &names[1..59] {
        world.wait_until_gone(name).await?;
    }
    world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    assert_eq!(uid_and_version(&world.config_map("m59").await?.expect("m59")), theirs, "untouched");
    Ok(())
}

/// C5: an object that a stack intended to write and never wrote does not belong to it.
#[tokio::test]
async fn c5_an_object_that_was_intended_and_never_written_is_never_deleted() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    let theirs = uid_and_version(&world.apply_foreign("settings").await?);
    let bad = format!(
        "{}---\napiVersion: v1\nkind: Service\nmetadata: {{name: bad, namespace: {}}}\nspec: {{ports: [{{port: 70000}}]}}\n",
        world.manifest(&[("settings", "1")]),
        world.namespace
    );
    world.fleet.submit("web", "env=prod", &bad).await?;
    world.wait_for_status("web", "shop-1", "failed", |status| status["state"] == "failed").await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("other", "1")])).await?;
    world.fleet.delete("web").await?;
    assert_eq!(uid_and_version(&world.config_map("settings").await?.expect("settings")), theirs, "untouched");
    Ok(())
}

/// C4: of two stacks that claim the same resource at the same time, one gets it and the other is refused.
#[tokio::test]
async fn c4_of_two_stacks_that_claim_one_resource_at_once_one_is_refused() -> Result<()> {
    let world = World::start().await?;
    world.create_namespace().await?;
    world.agent.kill9();
    for stack in ["first", "second"] {
        world
            .fleet
            .submit(
                stack,
                "env=prod",
                &brokkr_testkit::world::config_map_yaml(&world.namespace, "one", stack),
            )
            .await?;
    }
    world.agent.start()?;
    let mut states = Vec::new();
    for stack in ["first", "second"] {
        let settled =
            |status: &serde_json::Value| status["state"] == "healthy" || status["reason"] == "OwnedByOther";
        states.push(world.wait_for_status(stack, "shop-1", "settled", settled).await?["state"].clone());
    }
    states.sort_by_key(ToString::to_string);
    assert_eq!(states, ["failed", "healthy"]);
    Ok(())
}

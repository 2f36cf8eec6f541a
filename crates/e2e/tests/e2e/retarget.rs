//! Changes of a stack's targets: one agent removes the stack, the others keep it, and the removal can be reversed.

use anyhow::Result;
use brokkr_testkit::{Attempt, Cluster, Fleet, eventually, unique};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml, namespace_yaml};

#[tokio::test]
async fn a6_e3_an_agent_no_longer_targeted_removes_the_stack_and_the_others_keep_it() -> Result<()> {
    // Two clusters, because in one the two agents would claim the same objects.
    let (first, second) = (Cluster::shared().await?, Cluster::api_only().await?);
    let fleet = Fleet::start().await?;
    let shop_1 = fleet.join("shop-1", &[("env", "prod")], &first).await?;
    let _shop_2 = fleet.join("shop-2", &[("env", "prod")], &second).await?;
    let space = unique("space");
    let yaml = format!("{}{}", namespace_yaml(&space), config_map_yaml(&space, "one", "1"));
    fleet.apply("web", "env=prod", &yaml).await?;
    let maps_1: Api<ConfigMap> = Api::namespaced(first.admin().await?, &space);
    let maps_2: Api<ConfigMap> = Api::namespaced(second.admin().await?, &space);
    assert!(maps_1.get_opt("one").await?.is_some() && maps_2.get_opt("one").await?.is_some());

    let targets = fleet.get("/api/v1/agents/shop-1/targets").await?;
    assert_eq!(targets["items"][0]["stack_name"], "web");
    assert_eq!(
        targets["items"][0]["why"],
        json!({"kind": "selector", "selector": "env=prod"}),
        "A6: {targets}"
    );

    fleet.brokkr(["agent", "label", "shop-1", "env=test", "--expect", "1"]).await?.ok()?;
    eventually(WAIT_TIMEOUT, "shop-1 to remove the stack", async || match maps_1.get_opt("one").await {
        Ok(None) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;
    assert!(maps_2.get_opt("one").await?.is_some(), "shop-2 keeps it");
    assert_eq!(fleet.get("/api/v1/agents/shop-1/targets").await?["items"], json!([]));
    drop(shop_1);
    Ok(())
}

#[tokio::test]
async fn a_stack_targeted_again_during_its_removal_is_restored() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("held", "1"), ("other", "2")])).await?;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.config_maps().patch("held", &PatchParams::default(), &Patch::Merge(hold)).await?;

    world.fleet.brokkr(["agent", "label", "shop-1", "env=test", "--expect", "1"]).await?.ok()?;
    world.wait_until_gone("other").await?;
    world.wait_for_status("web", "shop-1", "blocked", |status| status["state"] == "blocked").await?;
    world.fleet.brokkr(["agent", "label", "shop-1", "env=prod"]).await?.ok()?;
    world.wait_for_value("other", "2").await?;
    let free = json!({"metadata": {"finalizers": null}});
    world.config_maps().patch("held", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.wait_for_value("held", "1").await?;
    world.wait_for_value("other", "2").await?;
    world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    Ok(())
}

#[tokio::test]
async fn c6_a_namespace_with_a_foreign_object_stays_and_is_named() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let theirs = world.apply_foreign("theirs").await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?["id"].as_str().unwrap().to_owned();
    world.fleet.brokkr(["agent", "label", "shop-1", "env=test", "--expect", "1"]).await?.ok()?;
    world.wait_until_gone("one").await?;
    let event = eventually(WAIT_TIMEOUT, "the removal to be reported", async || {
        let events = world.events(&stack).await.unwrap_or_default();
        match events.into_iter().find(|event| event["transition"] == "removed") {
            Some(event) => Attempt::Done(event),
            None => Attempt::NotYet("no removal yet".to_owned()),
        }
    })
    .await?;
    let message = event["message"].as_str().unwrap();
    assert!(message.contains(&world.namespace) && message.contains("theirs"), "left and named: {event}");
    assert!(world.live_namespace().await?.expect("left").metadata.deletion_timestamp.is_none());
    assert_eq!(world.config_map("theirs").await?.expect("theirs").metadata.uid, theirs.metadata.uid);
    Ok(())
}

/// G2: a stack targets agents by name, by selector, or both; labels and annotations are stored.
#[tokio::test]
async fn g2_a_stack_targets_agents_by_name_and_by_selector_and_both_have_labels() -> Result<()> {
    let world = World::start().await?;
    let file =
        world.fleet.cli.file("web.yaml", &world.manifest(&[("one", "1")]))?.to_string_lossy().into_owned();
    world
        .fleet
        .brokkr(["apply", "web", "-f", &file, "--to-agent", "shop-1", "--label", "team=red", "--wait"])
        .await?
        .ok()?;
    assert_eq!(world.value("one").await?.as_deref(), Some("1"));
    let targets = world.fleet.get("/api/v1/agents/shop-1/targets").await?;
    assert_eq!(targets["items"][0]["why"], json!({"kind": "explicit"}), "{targets}");
    let stack = world.fleet.get("/api/v1/stacks/web").await?;
    assert_eq!(stack["labels"], json!({"team": "red"}));

    let patch = json!({"annotations": {"contact": "ana"}});
    let answer =
        world.fleet.request(http::Method::PATCH, "/api/v1/agents/shop-1").json(&patch).send().await?;
    assert!(answer.status().is_success(), "{}", answer.text().await?);
    let agent = world.fleet.get("/api/v1/agents/shop-1").await?;
    assert_eq!(
        (&agent["labels"], &agent["annotations"]),
        (&json!({"env": "prod"}), &json!({"contact": "ana"}))
    );

    // By selector only: the same agent, for another reason.
    world
        .fleet
        .brokkr(["apply", "web", "-f", &file, "--to", "env in (prod,test)", "--wait=rollout"])
        .await?
        .ok()?;
    let targets = world.fleet.get("/api/v1/agents/shop-1/targets").await?;
    assert_eq!(targets["items"][0]["why"]["selector"], "env in (prod,test)", "{targets}");
    Ok(())
}

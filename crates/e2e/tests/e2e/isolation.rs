//! One broken stack beside nine good ones.

use anyhow::Result;

use brokkr_testkit::world::{World, config_map_yaml, namespace_yaml};

#[tokio::test]
async fn d5_one_broken_stack_does_not_prevent_nine_good_ones_from_converging() -> Result<()> {
    let world = World::start().await?;
    let space = |number: u32| format!("{}-{number}", world.namespace);
    let broken = format!(
        "{}---\napiVersion: v1\nkind: Service\nmetadata: {{name: bad, namespace: {space}}}\n\
         spec: {{ports: [{{port: 70000}}]}}\n",
        namespace_yaml(&world.namespace),
        space = world.namespace,
    );
    world.fleet.submit("broken", "env=prod", &broken).await?;
    for number in 0..9 {
        let yaml =
            format!("{}{}", namespace_yaml(&space(number)), config_map_yaml(&space(number), "one", "1"));
        world.fleet.submit(&format!("good-{number}"), "env=prod", &yaml).await?;
    }
    for number in 0..9 {
        world
            .wait_for_status(&format!("good-{number}"), "shop-1", "healthy", |status| {
                status["state"] == "healthy"
            })
            .await?;
    }
    world.wait_for_status("broken", "shop-1", "failed", |status| status["state"] == "failed").await?;
    Ok(())
}

/// After validation, one object that fails does not keep the others of its stack from being applied;
/// it suspends prune.
#[tokio::test]
async fn d5_one_failing_object_does_not_block_the_others_of_its_stack_and_suspends_prune() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("goes", "1")])).await?;
    // A quota lets the dry run pass (dry runs are not counted), and then allows only one more ConfigMap.
    let existing = world.config_maps().list(&Default::default()).await?.items.len();
    world
        .cluster
        .apply(&format!(
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: few, namespace: {}}}\n\
             spec: {{hard: {{count/configmaps: \"{}\"}}}}\n",
            world.namespace,
            existing + 1
        ))
        .await?;
    brokkr_testkit::eventually(brokkr_testkit::world::WAIT_TIMEOUT, "the quota to be counted", async || {
        let quotas: kube::Api<k8s_openapi::api::core::v1::ResourceQuota> =
            kube::Api::namespaced(world.client.clone(), &world.namespace);
        quotas.get("few").await.is_ok_and(|quota| quota.status.and_then(|status| status.used).is_some())
    })
    .await?;
    world
        .fleet
        .submit("web", "env=prod", &world.manifest(&[("one", "2"), ("two", "2"), ("three", "2")]))
        .await?;
    world.wait_for_status("web", "shop-1", "failed", |status| status["state"] == "failed").await?;
    world.wait_for_value("one", "2").await?;
    let made = [world.config_map("two").await?.is_some(), world.config_map("three").await?.is_some()];
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "one of the two fits: {made:?}");
    assert!(world.config_map("goes").await?.is_some(), "prune is suspended");
    Ok(())
}

/// A missing prerequisite is reported while the stack waits, and the stack is delivered once it exists.
#[tokio::test]
async fn a_missing_namespace_is_named_and_the_stack_continues_when_it_exists() -> Result<()> {
    let world = World::start().await?;
    world.fleet.submit("web", "env=prod", &config_map_yaml(&world.namespace, "one", "1")).await?;
    let status =
        world.wait_for_status("web", "shop-1", "failed", |status| status["state"] == "failed").await?;
    assert!(status["message"].as_str().unwrap().contains(&world.namespace), "{status}");

    // B2: a temporary error does not hide a permanent one; both are reported.
    let both = format!(
        "{}---\napiVersion: v1\nkind: Service\nmetadata: {{name: bad, namespace: default}}\nspec: {{ports: [{{port: 70000}}]}}\n",
        config_map_yaml(&world.namespace, "one", "1")
    );
    world.fleet.submit("web", "env=prod", &both).await?;
    let named =
        |status: &serde_json::Value| status["objects"].as_array().is_some_and(|notes| notes.len() == 2);
    world.wait_for_status("web", "shop-1", "failed for both", named).await?;
    world.fleet.submit("web", "env=prod", &config_map_yaml(&world.namespace, "one", "1")).await?;
    world.create_namespace().await?;
    world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    Ok(())
}

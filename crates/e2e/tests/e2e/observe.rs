//! The watches on a real API server: streaming lists, definitions that are created and deleted, a server that crashes. A
//! misbehaving server is simulated in the agent's own tests (`observe::tests`).

use std::sync::Arc;

use anyhow::Result;
use brokkr_testkit::{AgentOptions, Attempt, Cluster, Fleet, eventually, unique};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

fn rare_polls() -> AgentOptions {
    AgentOptions { polling_interval: "300s".into(), ..Default::default() }
}

/// Starts an agent that polls so rarely that only watches explain timely reactions.
async fn private_world() -> Result<World> {
    let cluster = Arc::new(Cluster::api_only().await?);
    World::start_in(cluster, Fleet::start().await?, &rare_polls()).await
}

#[tokio::test]
async fn f3_one_request_per_kind_lists_and_watches_only_the_metadata_of_managed_objects() -> Result<()> {
    let world = World::start_with(&rare_polls()).await?;
    let mark = world.cluster.audit().mark()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    world.edit("one", "wrong").await?;
    world.wait_for_value("one", "1").await?;
    let requests = world.agent.requests(mark)?;
    let about_maps: Vec<_> = requests
        .iter()
        .filter(|request| request.resource == "configmaps" && request.name.is_empty() && !request.is_write())
        .collect();
    assert!(!about_maps.is_empty());
    for request in about_maps {
        assert!(request.is_watch(), "a list was not needed: {request:?}");
        assert!(request.uri.contains("labelSelector=brokkr.io%2Fagent"), "{}", request.uri);
        assert!(request.uri.contains("sendInitialEvents=true"), "{}", request.uri);
    }
    Ok(())
}

#[tokio::test]
async fn f2_a_deleted_definition_is_recreated_with_its_resources() -> Result<()> {
    let world = World::start_with(&rare_polls()).await?;
    let group = format!("{}.example", unique("shop"));
    // Custom kinds have to be allowed by an administrator.
    let kinds = format!("--kind=*.{group}");
    brokkr_testkit::agent::install(&world.cluster, world.agent.namespace(), &[kinds]).await?;
    let manifest = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  \
         name: widgets.{group}\nspec:\n  group: {group}\n  scope: Cluster\n  \
         names: {{kind: Widget, plural: widgets}}\n  versions:\n  - name: v1\n    served: true\n    \
         storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        \
         x-kubernetes-preserve-unknown-fields: true\n---\napiVersion: {group}/v1\nkind: Widget\nmetadata:\n  \
         name: gear\nspec:\n  size: 1\n"
    );
    world.fleet.apply("widgets", "env=prod", &manifest).await?;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
    let before = widgets.get("gear").await?.metadata.uid;

    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.delete(&format!("widgets.{group}"), &Default::default()).await?;
    eventually(WAIT_TIMEOUT, "a new gear", async || match widgets.get_opt("gear").await {
        Ok(Some(gear)) if gear.metadata.uid != before => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await?;

    // The watch works again for the recreated kind.
    let wrong = json!({"spec": {"size": 9}});
    widgets.patch("gear", &PatchParams::default(), &Patch::Merge(wrong)).await?;
    eventually(WAIT_TIMEOUT, "the size to be repaired", async || match widgets.get("gear").await {
        Ok(gear) if gear.data["spec"]["size"] == 1 => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}

#[tokio::test]
async fn f2_watches_survive_a_killed_api_server() -> Result<()> {
    let world = private_world().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("edited", "1"), ("deleted", "2")])).await?;
    for round in 0..2 {
        world.cluster.kill_api_server()?;
        world.cluster.start_api_server().await?;
        world.edit("edited", &format!("wrong-{round}")).await?;
        world.config_maps().delete("deleted", &Default::default()).await?;
        world.wait_for_value("edited", "1").await?;
        world.wait_for_value("deleted", "2").await?;
    }
    Ok(())
}

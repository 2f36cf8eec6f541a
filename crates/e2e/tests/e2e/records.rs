//! The record in the cluster, after manual deletion and after crashes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World, uid_and_version};

/// More than a thousand objects on a small machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(240);
/// More than one shard of the inventory has.
const MANY: usize = 1_500;

#[tokio::test]
async fn e5_a_record_deleted_by_hand_deletes_no_resource_and_is_recreated() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let untouched = uid_and_version(&world.config_map("one").await?.expect("one"));
    let stack = stack_id(&world).await?;

    // While the agent runs: recreated with its next write.
    let first = only(records(&world, &stack).await?)?;
    delete_by_hand(&world, &first).await?;
    assert!(!records(&world, &stack).await?.is_empty(), "its finalizer holds it");
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "3")])).await?;
    let second = wait_until_recreated(&world, &stack, &first).await?;
    assert_eq!(world.value("two").await?.as_deref(), Some("3"));
    assert_eq!(world.config_map("one").await?.expect("one").uid(), untouched.0, "nothing was deleted");
    let untouched = uid_and_version(&world.config_map("one").await?.expect("one"));

    // While the agent is down: recreated at its start.
    world.agent.kill9();
    delete_by_hand(&world, &second).await?;
    assert!(!records(&world, &stack).await?.is_empty(), "its finalizer holds it");
    world.agent.start()?;
    wait_until_recreated(&world, &stack, &second).await?;
    world.fleet.active("shop-1").await?;
    assert_eq!(uid_and_version(&world.config_map("one").await?.expect("one")), untouched);

    // It is complete: the stack can be deleted as usual.
    world.fleet.brokkr(["stack", "delete", "web", "--yes", "--wait"]).await?.ok()?;
    world.wait_until_gone("one").await?;
    world.wait_until_gone("two").await?;
    no_record(&world, &stack, WAIT_TIMEOUT).await
}

#[tokio::test]
async fn d6_a_sharded_inventory_survives_kill_9_in_the_middle_and_everything_is_found_again() -> Result<()> {
    let world = World::start().await?;
    let names: Vec<String> = (0..MANY).map(|number| format!("map-{number}")).collect();
    let maps: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    world.fleet.submit("many", "env=prod", &world.manifest(&maps)).await?;
    let stack = stack_id_of(&world, "many").await?;
    for part in [1, MANY / 2] {
        eventually(LONG_TIMEOUT, &format!("{part} of {MANY} to be applied"), async || {
            match ours(&world).await {
                Ok(applied) if applied.len() >= part => Attempt::Done(()),
                other => Attempt::NotYet(format!("{:?}", other.map(|applied| applied.len()))),
            }
        })
        .await?;
        world.agent.restart()?;
    }
    let wanted: BTreeSet<String> = names.iter().cloned().collect();
    eventually(LONG_TIMEOUT, "everything to be applied", async || match ours(&world).await {
        Ok(applied) if applied == wanted => Attempt::Done(()),
        other => Attempt::NotYet(format!("{:?}", other.map(|applied| applied.len()))),
    })
    .await?;
    let parts = shards(&world).await?;
    assert!(parts.len() > 1, "too many for one shard: {parts:?}");

    world.fleet.brokkr(["stack", "delete", "many", "--yes"]).await?.ok()?;
    eventually(LONG_TIMEOUT, "the removal to begin", async || match ours(&world).await {
        Ok(applied) if applied.len() < MANY => Attempt::Done(()),
        other => Attempt::NotYet(format!("{:?}", other.map(|applied| applied.len()))),
    })
    .await?;
    world.agent.restart()?;
    no_record(&world, &stack, LONG_TIMEOUT).await?;
    assert_eq!(ours(&world).await?, BTreeSet::new());
    eventually(WAIT_TIMEOUT, "no shard to be left", async || match shards(&world).await {
        Ok(shards) if shards.is_empty() => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}

async fn stack_id(world: &World) -> Result<String> {
    stack_id_of(world, "web").await
}

async fn stack_id_of(world: &World, name: &str) -> Result<String> {
    let stack = world.fleet.get(&format!("/api/v1/stacks/{name}")).await?;
    Ok(stack["id"].as_str().unwrap_or_default().to_owned())
}

/// Returns the records of a stack, including those that are being deleted.
async fn records(world: &World, stack: &str) -> Result<Vec<Value>> {
    let list: Value = world.cluster.kubectl(["get", "stacks.brokkr.io", "-o", "json"]).await?.ok()?.json()?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().filter(|item| item["spec"]["stackId"] == *stack).collect())
}

fn only(records: Vec<Value>) -> Result<String> {
    anyhow::ensure!(records.len() == 1, "{records:?}");
    Ok(records[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

async fn delete_by_hand(world: &World, record: &str) -> Result<()> {
    world.cluster.kubectl(["delete", "stacks.brokkr.io", record, "--wait=false"]).await?.ok()?;
    Ok(())
}

/// Waits until there is a record that is not being deleted, and checks that there is always at least one.
async fn wait_until_recreated(world: &World, stack: &str, deleted: &str) -> Result<String> {
    let found =
        eventually(WAIT_TIMEOUT, "the record to be recreated", async || match records(world, stack).await {
            Ok(found) if found.is_empty() => {
                Attempt::Done(Err(anyhow::anyhow!("there was no record at all")))
            }
            Ok(found) if found.len() == 1 && found[0]["metadata"]["deletionTimestamp"].is_null() => {
                Attempt::Done(Ok(found))
            }
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await??;
    let name = only(found)?;
    assert_ne!(name, deleted);
    Ok(name)
}

async fn no_record(world: &World, stack: &str, timeout: Duration) -> Result<()> {
    eventually(timeout, "the record to be deleted last", async || match records(world, stack).await {
        Ok(found) if found.is_empty() => Attempt::Done(()),
        other => Attempt::NotYet(format!("{:?}", other.map(|found| found.len()))),
    })
    .await
}

/// Returns everything in the namespace with Brokkr's label.
async fn ours(world: &World) -> Result<BTreeSet<String>> {
    let list = world.config_maps().list_metadata(&ListParams::default().labels("brokkr.io/agent")).await?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

async fn shards(world: &World) -> Result<Vec<String>> {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), world.agent.namespace());
    let list = maps.list_metadata(&ListParams::default().labels("brokkr.io/inventory-of")).await?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

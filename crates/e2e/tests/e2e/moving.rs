//! An object that moves from one stack of an agent to another changes its owner by one apply and is never deleted.

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};

use brokkr_testkit::world::{WAIT_TIMEOUT, World};

async fn wait_for_owner(world: &World, name: &str, stack: &str) -> Result<()> {
    let id = world.fleet.get(&format!("/api/v1/stacks/{stack}")).await?["id"].clone();
    eventually(WAIT_TIMEOUT, &format!("{name} to belong to {stack}"), async || {
        match world.config_map(name).await {
            Ok(Some(map))
                if map
                    .metadata
                    .annotations
                    .as_ref()
                    .and_then(|all| all.get("brokkr.io/stack-id"))
                    .map(String::as_str)
                    == id.as_str() =>
            {
                Attempt::Done(())
            }
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await
}

/// The new stack is delivered first: it is refused until the old one releases the object.
#[tokio::test]
async fn c4_an_object_in_a_second_stack_moves_to_it_when_the_first_releases_it() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("old", "env=prod", &world.manifest(&[("moved", "1"), ("stays", "1")])).await?;
    let uid = world.config_map("moved").await?.expect("moved").metadata.uid;
    let moved = world
        .manifest(&[("moved", "2")])
        .split_once("---\napiVersion: v1\nkind: ConfigMap")
        .map(|(_, rest)| format!("---\napiVersion: v1\nkind: ConfigMap{rest}"));
    let moved = moved.expect("a ConfigMap");
    world.fleet.submit("new", "env=prod", &moved).await?;
    world
        .wait_for_status("new", "shop-1", "refused", |status| status.to_string().contains("OwnedByOther"))
        .await?;
    assert_eq!(world.value("moved").await?.as_deref(), Some("1"), "not taken over silently");
    world.fleet.apply("old", "env=prod", &world.manifest(&[("stays", "1")])).await?;
    wait_for_owner(&world, "moved", "new").await?;
    world.wait_for_value("moved", "2").await?;
    assert_eq!(world.config_map("moved").await?.expect("moved").metadata.uid, uid, "never deleted");
    // The old stack no longer owns it.
    world.fleet.delete("old").await?;
    assert_eq!(world.config_map("moved").await?.expect("moved").metadata.uid, uid);
    Ok(())
}

/// Both stacks get a new version while the agent is down; the order in which it applies them does not matter.
#[tokio::test]
async fn c4_an_object_moved_while_the_agent_was_down_changes_its_stack() -> Result<()> {
    let world = World::start().await?;
    let map = |name: &str, value: &str| brokkr_testkit::world::config_map_yaml(&world.namespace, name, value);
    world.create_namespace().await?;
    world.fleet.apply("alpha", "env=prod", &format!("{}{}", map("one", "1"), map("a", "1"))).await?;
    world.fleet.apply("beta", "env=prod", &format!("{}{}", map("two", "1"), map("b", "1"))).await?;
    let uids = (
        world.config_map("one").await?.expect("one").metadata.uid,
        world.config_map("two").await?.expect("two").metadata.uid,
    );
    world.agent.kill9();
    // Crosswise, so that both orders are tested.
    world.fleet.submit("alpha", "env=prod", &format!("{}{}", map("two", "2"), map("a", "1"))).await?;
    world.fleet.submit("beta", "env=prod", &format!("{}{}", map("one", "2"), map("b", "1"))).await?;
    world.agent.start()?;
    wait_for_owner(&world, "one", "beta").await?;
    wait_for_owner(&world, "two", "alpha").await?;
    world.wait_for_value("one", "2").await?;
    world.wait_for_value("two", "2").await?;
    let now = (
        world.config_map("one").await?.expect("one").metadata.uid,
        world.config_map("two").await?.expect("two").metadata.uid,
    );
    assert_eq!(now, uids, "never deleted");
    Ok(())
}

//! A9: the broker is unavailable, and the agent continues with what its cluster holds.

use anyhow::Result;
use brokkr_testkit::{AgentOptions, Attempt, Cluster, Fleet, Port, eventually};

use brokkr_testkit::world::{WAIT_TIMEOUT, World, uid_and_version};

/// The hard part of A9: nothing is left in memory, and the broker cannot be reached.
#[tokio::test]
async fn a9_an_agent_restarted_while_the_broker_is_down_still_repairs_drift_and_catches_up() -> Result<()> {
    let world = World::start().await?;
    let manifest = |value| world.manifest(&[("edited", value), ("deleted", "2"), ("same", "3")]);
    world.fleet.apply("web", "env=prod", &manifest("0")).await?;
    world.fleet.apply("web", "env=prod", &manifest("1")).await?;
    let same = uid_and_version(&world.config_map("same").await?.expect("same"));
    world.agent.kill9();
    world.fleet.broker.kill9();
    world.edit("edited", "wrong while down").await?;
    world.config_maps().delete("deleted", &Default::default()).await?;
    world.agent.start()?;
    world.wait_for_value("edited", "1").await?;
    world.wait_for_value("deleted", "2").await?;
    // From then on, drift is repaired at once, as usual.
    world.edit("edited", "wrong again").await?;
    world.wait_for_value("edited", "1").await?;
    assert_eq!(
        uid_and_version(&world.config_map("same").await?.expect("same")),
        same,
        "an equal object is not touched"
    );

    world.fleet.broker.start_again().await?;
    world.wait_for_status("web", "shop-1", "any status", |_| true).await?;
    eventually(WAIT_TIMEOUT, "the repairs made meanwhile to be reported", async || {
        match world.events("web").await {
            Ok(events) if events.iter().any(|event| event["transition"] == "repaired") => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    world.fleet.apply("web", "env=prod", &manifest("4")).await?;
    assert_eq!(world.value("edited").await?.as_deref(), Some("4"));
    Ok(())
}

/// The stored content is removed with the stack.
#[tokio::test]
async fn a9_contents_are_stored_for_as_long_as_they_are_in_force() -> Result<()> {
    let world = World::start().await?;
    for value in ["1", "2", "3"] {
        world.fleet.apply("web", "env=prod", &world.manifest(&[("one", value)])).await?;
    }
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(world.client.clone(), world.agent.namespace());
    let kept = async || {
        let list = secrets.list(&kube::api::ListParams::default().labels("brokkr.io/content-of")).await?;
        anyhow::Ok(list.items.len())
    };
    let number = async |wanted: usize| {
        eventually(WAIT_TIMEOUT, &format!("{wanted} stored contents"), async || match kept().await {
            Ok(found) if found == wanted => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    };
    number(1).await?;
    world.fleet.delete("web").await?;
    number(0).await
}

/// The first process of a container must handle SIGTERM; otherwise its end is delayed until SIGKILL.
#[tokio::test]
async fn an_agent_that_waits_for_its_broker_ends_on_sigterm() -> Result<()> {
    let (fleet, cluster, port) = (Fleet::start().await?, Cluster::shared().await?, Port::free()?);
    let broker_url = Some(format!("https://{}", port.address()));
    let options = AgentOptions { broker_url, ..AgentOptions::default() };
    let agent = fleet.launch("shop-1", &[], &cluster, &options).await?;
    agent.wait_for_log("failed to join the broker", WAIT_TIMEOUT).await?;
    let ended = agent.stop().await?;
    assert_eq!(ended.code(), Some(0), "it must exit by itself, not be ended by the signal: {ended}");
    Ok(())
}

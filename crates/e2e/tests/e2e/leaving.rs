//! Agents that are retired or abandoned.

use anyhow::Result;

use brokkr_testkit::world::World;

#[tokio::test]
async fn a_retired_agent_has_removed_everything_that_it_delivered() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let retired = world.fleet.brokkr(["agent", "retire", "shop-1", "--yes"]).await?.ok()?;
    assert!(retired.stdout.contains("agent shop-1 is retired"), "{retired:?}");
    // The agent's namespace depends on the installation.
    assert!(retired.stderr.contains("kubectl get deployments -A -l app.kubernetes.io/name=brokkr-agent"));
    assert!(!retired.stderr.contains("brokkr-system"), "{retired:?}");
    assert!(world.config_map("one").await?.is_none() && world.live_namespace().await?.is_none());
    let shown = world.fleet.brokkr(["agent", "show", "shop-1"]).await?.ok()?;
    assert!(
        shown.stdout.contains("ABANDONED")
            && shown.stdout.contains("retired after all its stacks were removed"),
        "{shown:?}"
    );
    Ok(())
}

#[tokio::test]
async fn e3_a_removal_in_a_dead_cluster_stays_pending_until_the_agent_is_abandoned() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.agent.kill9();
    let pending = ["stack", "delete", "web", "--yes", "--wait", "--timeout", "3s"];
    let pending = world.fleet.brokkr(pending).await?;
    assert!(pending.code == 124 && pending.stdout.contains("pending"), "{pending:?}");

    let reason = ["agent", "abandon", "shop-1", "--yes", "--reason", "the shop burnt down"];
    world.fleet.brokkr(reason).await?.ok()?;
    world.fleet.brokkr(["wait", "web", "--for", "deleted", "--timeout", "60s"]).await?.ok()?;
    assert!(world.config_map("one").await?.is_some(), "its objects stay in the cluster");
    let shown = world.fleet.brokkr(["agent", "show", "shop-1"]).await?.ok()?;
    assert!(shown.stdout.contains("Abandoned") && shown.stdout.contains("the shop burnt down"), "{shown:?}");
    Ok(())
}

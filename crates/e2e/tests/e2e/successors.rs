//! Two processes of one agent, as during an update: the newer one writes, and if it is gone, the older one takes over again.

use anyhow::Result;
use brokkr_testkit::AgentOptions;
use brokkr_testkit::world::{WAIT_TIMEOUT, World};

#[tokio::test]
async fn d6_an_agent_takes_over_again_if_its_successor_is_gone() -> Result<()> {
    let arguments = ["--return-after", "2s"].map(ToOwned::to_owned).to_vec();
    let world = World::start_with(&AgentOptions { arguments, ..AgentOptions::default() }).await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let successor = world.agent.twin()?;
    world.agent.wait_for_log("writes are suspended", WAIT_TIMEOUT).await?;
    successor.kill9();
    world.edit("one", "drifted").await?;

    // It ends, as a container does that Kubernetes starts again.
    assert!(world.agent.ended(WAIT_TIMEOUT).await?.success());
    world.agent.start()?;
    world.wait_for_value("one", "1").await
}

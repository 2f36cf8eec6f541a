//! Two API servers on one etcd, as in every highly available control plane. One of them gets etcd's answers three seconds late, so
//! that what it shows is old, and the connections of the agent move between the two at random.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use brokkr_e2e::rounds;
use brokkr_testkit::proxy::FaultProxy;
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Cluster, TcpProxy, seed};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::world::FaultWorld;

const LAG: Duration = Duration::from_secs(3);
/// A start and a delivery through the lagging server take about a hundred requests, most of them one after the other.
const PATIENCE: Duration = Duration::from_secs(240);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What happens in a round, after a new version was submitted.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    ConnectionsMove,
    ObjectChanges,
    ObjectIsDeleted,
    AgentDies,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::Nothing,
    Trouble::ConnectionsMove,
    Trouble::ObjectChanges,
    Trouble::ObjectIsDeleted,
    Trouble::AgentDies,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_between_a_current_and_a_lagging_api_server_loses_and_leaks_nothing() -> Result<()> {
    let (mut cluster, seed) = (Cluster::api_only().await?, seed());
    let balancer = TcpProxy::start(cluster.start_lagging_server(LAG).await?.to_vec(), seed).await?;
    let upstream = format!("https://{}", balancer.address());
    let authority = Authority::new("brokkr-test-fault-proxy")?;
    let api_proxy = FaultProxy::in_front_of(&upstream, &cluster.facts().authority, &authority).await?;
    let world = FaultWorld::start_behind(api_proxy, Arc::new(cluster)).await?;
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..rounds(1, 25) {
        let value = round.to_string();
        let maps: Vec<(&str, &str)> =
            NAMES.iter().filter(|_| random.random_bool(0.7)).map(|name| (*name, value.as_str())).collect();
        let maps = if maps.is_empty() { vec![(NAMES[0], value.as_str())] } else { maps };
        world.submit(&maps).await?;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
            let trouble = *TROUBLES.choose(&mut random).unwrap_or(&Trouble::Nothing);
            let name = NAMES[random.random_range(0..4)];
            println!("round {round}, {maps:?}: {trouble:?} ({name})");
            meddle(&world, &balancer, trouble, name).await?;
        }
        balancer.cut();
        world.wait_until_converged_within(PATIENCE, &maps).await?;
    }
    world.delete_stack().await?;
    balancer.cut();
    world.wait_until_deleted().await?;
    world.assert_invariants().await
}

async fn meddle(world: &FaultWorld, balancer: &TcpProxy, trouble: Trouble, name: &str) -> Result<()> {
    match trouble {
        Trouble::Nothing => {}
        Trouble::ConnectionsMove => balancer.cut(),
        // Fails if the object does not exist at this moment.
        Trouble::ObjectChanges => drop(world.edit(name, "changed").await),
        Trouble::ObjectIsDeleted => drop(world.config_maps().delete(name, &Default::default()).await),
        Trouble::AgentDies => {
            world.agent.kill9();
            world.agent.start()?;
        }
    }
    Ok(())
}

//! Rows 15 to 17: duties that one replica does for all, and one that is paused, or cut off, in the middle of them.

use std::time::Duration;

use anyhow::{Result, ensure};
use brokkr_testkit::eventually;
use brokkr_testkit::pgproxy::{Fault, Matcher, Rule, When};

use crate::world::World;
use crate::{PATIENCE, SOON};
use brokkr_e2e::rounds;

/// What only the one writes that has the lease.
const CHAINS: &str = "insert into audit_chain";
const TAKES: &str = "insert into leases";

/// Counts how often the leader writes, at each replica, without doing anything to it.
fn watch(world: &World) -> [Rule; 2] {
    let nothing = Fault::Delay(Duration::ZERO);
    world.proxies.each_ref().map(|proxy| proxy.when(Matcher::statement(CHAINS), When::Before, nothing))
}

/// Which replica writes as the leader.
async fn leader(world: &World) -> Result<usize> {
    let watched = watch(world);
    let found =
        eventually(SOON, "somebody to lead", async || watched.iter().position(|rule| rule.hits() > 0));
    let found = found.await?;
    watched.iter().for_each(Rule::release);
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_both_replicas_have_the_same_duties_and_there_is_one_result() -> Result<()> {
    let mut world = World::start().await?;
    world.load().await?;
    let led = leader(&world).await?;
    let watched = watch(&world);
    world.gets_on_within(rounds(10, 60), PATIENCE).await?;
    ensure!(watched[1 - led].hits() == 0, "S15: at any time one replica chains, not both");
    // The leader dies; the other takes over, and there is still one chain.
    world.replicas[led].kill9();
    eventually(PATIENCE, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
    world.replicas[led].start_again().await?;
    world.gets_on(3).await?;
    world.settled().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_leader_that_was_paused_past_its_lease_writes_nothing_any_more() -> Result<()> {
    let mut world = World::start().await?;
    world.load().await?;
    for _ in 0..rounds(1, 3) {
        let led = leader(&world).await?;
        // It has just taken its lease once more when everything stands still for it.
        let held = world.proxies[led].when(Matcher::statement(TAKES).nth(1), When::After, Fault::Hold);
        held.wait_for_hits(1, SOON).await?;
        let watched = watch(&world);
        eventually(PATIENCE, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
        let before = watched[led].hits();
        held.release();
        world.gets_on_within(rounds(5, 10), PATIENCE).await?;
        let after = watched[led].hits();
        ensure!(after == before, "S15: it wrote {} times on a lease that it had lost", after - before);
        watched.iter().for_each(Rule::release);
    }
    world.settled().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_replica_that_was_stopped_for_a_while_goes_on_where_the_others_are() -> Result<()> {
    let mut world = World::start().await?;
    world.load().await?;
    let led = leader(&world).await?;
    world.replicas[led].pause()?;
    let watched = watch(&world);
    eventually(PATIENCE, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
    tokio::time::sleep(Duration::from_secs(rounds(1, 45) as u64)).await;
    world.replicas[led].resume()?;
    world.ready(led, PATIENCE).await?;
    world.gets_on(3).await?;
    world.settled().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_connections_that_go_silent_in_the_middle_of_a_statement_are_given_up() -> Result<()> {
    let mut world = World::start().await?;
    world.load().await?;
    // The reader of the outbox, and as many requests as there are connections.
    let reader = world.proxies[0].when(Matcher::statement("from outbox").nth(1), When::After, Fault::Silence);
    let commits = Matcher::commit_of("insert into deployment_objects").first(rounds(5, 25));
    let silent = world.proxies[0].when(commits, When::After, Fault::Silence);
    reader.wait_for_hits(1, SOON).await?;
    silent.wait_for_hits(1, SOON).await?;
    world.one_gets_on(1, 5).await?;
    world.ready(0, Duration::from_secs(90)).await?;
    world.proxies[0].heal();
    world.gets_on_within(3, PATIENCE).await?;
    world.settled().await
}

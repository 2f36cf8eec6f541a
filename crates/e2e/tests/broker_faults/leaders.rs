//! Rows 15 to 17: tasks that one replica runs for all, and a leader that is paused or cut off during them.

use std::time::Duration;

use anyhow::{Result, ensure};
use brokkr_testkit::eventually;
use brokkr_testkit::pgproxy::{Fault, Matcher, Rule, When};

use crate::broker_pair::BrokerPair;
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};
use brokkr_e2e::rounds;

/// Extends the audit chain; only the leader executes it.
const CHAINS: &str = "insert into audit_chain";
/// Takes or renews the lease; every replica tries, and one succeeds.
const TAKES: &str = "insert into leases";

/// Counts the leader's writes at each replica, without disturbing them.
fn watch(pair: &BrokerPair) -> [Rule; 2] {
    let nothing = Fault::Delay(Duration::ZERO);
    pair.proxies.each_ref().map(|proxy| proxy.when(Matcher::statement(CHAINS), When::Before, nothing))
}

/// Returns the replica that is the leader.
async fn leader(pair: &BrokerPair) -> Result<usize> {
    let watched = watch(pair);
    let found = eventually(RECOVERY_TIMEOUT, "a replica to lead", async || {
        watched.iter().position(|rule| rule.hits() > 0)
    });
    let found = found.await?;
    watched.iter().for_each(Rule::release);
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_15_both_replicas_run_the_same_tasks_with_one_result() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let led = leader(&pair).await?;
    let watched = watch(&pair);
    pair.wait_for_progress_within(rounds(10, 60), WAIT_TIMEOUT).await?;
    ensure!(watched[1 - led].hits() == 0, "S15: only the leader extends the audit chain");
    // The leader dies; the other takes over, and there is still one chain.
    pair.replicas[led].kill9();
    eventually(WAIT_TIMEOUT, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
    pair.replicas[led].start_again().await?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_leader_that_was_paused_past_its_lease_writes_nothing() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for _ in 0..rounds(1, 3) {
        let led = leader(&pair).await?;
        // It is paused right after it has renewed its lease.
        let held = pair.proxies[led].when(Matcher::statement(TAKES).nth(1), When::After, Fault::Hold);
        held.wait_for_hits(1, RECOVERY_TIMEOUT).await?;
        let watched = watch(&pair);
        eventually(WAIT_TIMEOUT, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
        let before = watched[led].hits();
        held.release();
        pair.wait_for_progress_within(rounds(5, 10), WAIT_TIMEOUT).await?;
        let after = watched[led].hits();
        ensure!(after == before, "S15: it wrote {} times on a lease that it had lost", after - before);
        watched.iter().for_each(Rule::release);
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_paused_replica_catches_up_with_the_others() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    let led = leader(&pair).await?;
    pair.replicas[led].pause()?;
    let watched = watch(&pair);
    eventually(WAIT_TIMEOUT, "the other replica to lead", async || watched[1 - led].hits() > 0).await?;
    tokio::time::sleep(Duration::from_secs(rounds(1, 45) as u64)).await;
    pair.replicas[led].resume()?;
    pair.wait_until_ready(led, WAIT_TIMEOUT).await?;
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_connections_that_go_silent_during_a_statement_are_closed() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    // The reader of the outbox, and requests: in a full run, more than there are connections.
    let reader = pair.proxies[0].when(Matcher::statement("from outbox").nth(1), When::After, Fault::Silence);
    let commits = Matcher::commit_of("insert into deployment_objects").first(rounds(5, 25));
    let silent = pair.proxies[0].when(commits, When::After, Fault::Silence);
    reader.wait_for_hits(1, RECOVERY_TIMEOUT).await?;
    silent.wait_for_hits(1, RECOVERY_TIMEOUT).await?;
    pair.wait_for_progress_at(1, 5).await?;
    pair.wait_until_ready(0, Duration::from_secs(90)).await?;
    pair.proxies[0].heal();
    pair.wait_for_progress_within(3, WAIT_TIMEOUT).await?;
    pair.finish().await
}

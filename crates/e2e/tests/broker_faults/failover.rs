//! Row 8 on a real standby: a primary that is killed under load, and a standby that is promoted with or without its last
//! transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::SequenceId;
use brokkr_api::ids::Checksum;
use brokkr_e2e::rounds;
use brokkr_testkit::history::{Change, Truth};
use brokkr_testkit::{Attempt, eventually, seed};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::broker_pair::BrokerPair;
use crate::clients::{ChangeRequest, STACKS, object};
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};

/// The longest time between the end of the replication and that of the primary.
const LONGEST_LOSS_MILLIS: u64 = 400;

#[tokio::test(flavor = "multi_thread")]
async fn row_08_a_standby_that_lost_transactions_puts_the_installation_on_hold() -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = BrokerPair::start().await?;
    for round in 0..rounds(2, 20) {
        let standby = pair.server()?.standby().await?;
        pair.start_load().await?;
        pair.wait_for_progress(3).await?;
        standby.server().context("a private server")?.stop_following().await?;
        // At least this submission is lost, however slow the load is.
        let submission = ChangeRequest::submit(STACKS[round % STACKS.len()], 100);
        object(&pair.caller.send_until_known(round, submission).await)?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..LONGEST_LOSS_MILLIS))).await;
        let restart = round % 2 == 1;
        pair.fail_over_to(standby, restart).await?;

        let lost = lost(&pair).await?;
        println!("round {round}: {} acknowledged objects lost, replicas restarted: {restart}", lost.len());
        ensure!(!lost.is_empty(), "round {round} lost nothing");
        wait_for_hold(&pair, lost.last().copied())
            .await
            .with_context(|| format!("round {round} lost {lost:?}"))?;
        pair.abort_load().await;
        for replica in 0..2 {
            pair.wait_until_ready(replica, WAIT_TIMEOUT).await?;
        }
        pair.raise_epoch().await?;
        settle(&mut pair).await.with_context(|| format!("round {round}"))?;
        no_id_has_two_contents(&pair).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_08_a_synchronous_standby_loses_nothing_and_causes_no_hold() -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed());
    let mut pair = BrokerPair::start().await?;
    for round in 0..rounds(2, 20) {
        let standby = pair.server()?.standby().await?;
        pair.server()?.replicate_synchronously().await?;
        pair.start_load().await?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..LONGEST_LOSS_MILLIS))).await;
        pair.fail_over_to(standby, round % 2 == 1).await?;
        pair.wait_for_progress_within(3, WAIT_TIMEOUT).await?;
        for replica in 0..2 {
            let newest = contents(&pair).into_iter().map(|(sequence, _)| sequence).max();
            let hold = pair.caller.hold(replica, newest).await?;
            ensure!(hold.is_null(), "round {round}: replica {replica} is on hold: {hold}");
        }
        pair.check_history().await.with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Returns the acknowledged objects that the database does not have.
async fn lost(pair: &BrokerPair) -> Result<BTreeSet<SequenceId>> {
    let acknowledged: BTreeSet<SequenceId> =
        contents(pair).into_iter().map(|(sequence, _)| sequence).collect();
    let truth = Truth::read(&mut pair.connect_directly().await?).await?;
    let stored: BTreeSet<SequenceId> = truth.objects.iter().map(|object| object.sequence).collect();
    // What an earlier round lost was settled by that round.
    let settled = pair.settled_below;
    Ok(acknowledged.difference(&stored).copied().filter(|sequence| *sequence > settled).collect())
}

/// Returns the sequence id and the content of every acknowledged object.
fn contents(pair: &BrokerPair) -> Vec<(SequenceId, Checksum)> {
    let history = pair.recorder.snapshot();
    let objects = history.operations.iter().filter(|operation| {
        matches!(operation.change, Change::Submit { .. } | Change::RollBack { .. } | Change::Delete { .. })
    });
    objects
        .filter_map(|operation| operation.object())
        .map(|(_, sequence, content)| (sequence, content))
        .collect()
}

/// Waits until every replica refuses changes. Agents and the author of a lost write continue meanwhile: any of them may be the
/// first to show what was lost.
async fn wait_for_hold(pair: &BrokerPair, lost: Option<SequenceId>) -> Result<()> {
    eventually(RECOVERY_TIMEOUT, "both replicas to be on hold", async || {
        for replica in 0..2 {
            match pair.caller.hold(replica, lost).await {
                Ok(hold) if !hold.is_null() => {}
                other => return Attempt::NotYet(format!("replica {replica}: {other:?}")),
            }
        }
        Attempt::Done(())
    })
    .await
}

/// Submits a new version of every stack, as an operator who has decided what is right, and waits until all agents get it.
async fn settle(pair: &mut BrokerPair) -> Result<()> {
    pair.wait_until_served().await?;
    let highest = contents(pair).into_iter().map(|(sequence, _)| sequence).max();
    for (number, stack) in STACKS.into_iter().enumerate() {
        let next = object(&pair.caller.send_until_known(number, ChangeRequest::submit(stack, 100)).await)?;
        ensure!(Some(next) > highest, "A4: {next} was assigned although {highest:?} was");
        pair.settled_below = pair.settled_below.max(next);
    }
    pair.wait_until_consistent().await
}

/// A4: requires that no sequence id was acknowledged with one content and stored or acknowledged with another.
async fn no_id_has_two_contents(pair: &BrokerPair) -> Result<()> {
    let truth = Truth::read(&mut pair.connect_directly().await?).await?;
    let stored = truth.objects.iter().map(|object| (object.sequence, object.checksum));
    let mut known: BTreeMap<SequenceId, Checksum> = BTreeMap::new();
    for (sequence, content) in stored.chain(contents(pair)) {
        let first = *known.entry(sequence).or_insert(content);
        ensure!(first == content, "A4: {sequence} has two contents");
    }
    Ok(())
}

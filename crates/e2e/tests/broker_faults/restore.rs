//! Rows 8 and 9: a database that has lost acknowledged changes, because a standby or a backup replaced it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use brokkr_api::{AgentId, Position, PositionToken, SequenceId, StackId};
use brokkr_client::Poll;
use brokkr_testkit::eventually;
use brokkr_testkit::history::{Outcome, Truth};

use crate::WAIT_TIMEOUT;
use crate::broker_pair::BrokerPair;
use crate::clients::{ChangeRequest, object};

type Known = HashMap<AgentId, (PositionToken, HashMap<StackId, SequenceId>)>;

/// Returns the position and the stacks that each agent has seen.
async fn known(pair: &BrokerPair) -> Result<Known> {
    let mut known = Known::new();
    for agent in &pair.agents {
        match agent.poll(0, &agent.ask(Position::default(), None, Duration::ZERO)).await? {
            Poll::Changed { envelope, position, .. } => {
                let stacks =
                    envelope.stacks.iter().map(|stack| (stack.stack_id, stack.sequence_id)).collect();
                known.insert(agent.id, (position, stacks));
            }
            other => bail!("{other:?}"),
        }
    }
    Ok(known)
}

/// Requires that no agent gets older stacks; returns an error if an agent is not put on hold.
async fn assert_no_agent_goes_back(pair: &BrokerPair, known: &Known, replica: usize) -> Result<()> {
    let polls = pair.agents.iter().map(|agent| async move {
        let (position, stacks) = &known[&agent.id];
        match agent.poll(replica, &agent.ask(*position, None, Duration::ZERO)).await {
            Ok(Poll::Changed { envelope, .. }) => {
                for stack in &envelope.stacks {
                    let before = stacks.get(&stack.stack_id);
                    assert!(
                        before.is_none_or(|before| *before <= stack.sequence_id),
                        "S2: replica {replica} sends {} from {before:?} back to {}",
                        agent.name,
                        stack.sequence_id
                    );
                }
                bail!("{} at {position} is served {:?}", agent.name, envelope.stacks.len())
            }
            Ok(Poll::OnHold { .. }) => Ok(()),
            Ok(Poll::HoldsWanted) => {
                agent.report_holds(replica).await?;
                bail!("the broker requested the held stacks of {}", agent.name)
            }
            other => bail!("{} at {position} gets {other:?}", agent.name),
        }
    });
    // Concurrently, because each poll waits for a replica that might only be behind.
    futures::future::try_join_all(polls).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_08_a_failover_that_lost_transactions_rolls_no_agent_back_and_reuses_no_id() -> Result<()> {
    replace_database(true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_a_restored_database_rolls_no_agent_back_and_reuses_no_id() -> Result<()> {
    replace_database(false).await
}

/// Replaces the database by a backup. The replicas either keep running meanwhile, or are restarted on it.
async fn replace_database(serving: bool) -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    pair.check_history().await?;
    let backup = pair.server()?.back_up().await?;
    pair.start_load().await?;
    pair.wait_for_progress(10).await?;
    pair.check_history().await?;
    let known = known(&pair).await?;
    let known_by_agents = known.values().flat_map(|(_, stacks)| stacks.values()).max().copied();
    let highest = acknowledged(&pair).max(known_by_agents);

    if serving {
        pair.server()?.restore(&backup).await?;
    } else {
        pair.replicas.iter().for_each(|replica| replica.kill9());
        pair.server()?.restore(&backup).await?;
        for replica in &pair.replicas {
            replica.start_again().await?;
        }
    }
    let truth = Truth::read(&mut pair.connect_directly().await?).await?;
    let stored = truth.objects.iter().map(|object| object.sequence).max();
    ensure!(stored < highest, "the backup has lost nothing: {stored:?} of {highest:?}");
    for replica in 0..2 {
        let what = format!("replica {replica} to put all agents on hold");
        eventually(WAIT_TIMEOUT, &what, async || assert_no_agent_goes_back(&pair, &known, replica).await)
            .await?;
        let written = pair.caller.attempt(replica, &ChangeRequest::submit("web", 100)).await;
        ensure!(!matches!(written, Outcome::Acknowledged(_)), "replica {replica} on hold: {written:?}");
    }
    pair.raise_epoch().await?;
    pair.wait_until_served().await?;
    let next = object(&pair.caller.send_until_known(1, ChangeRequest::submit("web", 100)).await)?;
    ensure!(Some(next) > highest, "A4: {next} was assigned although {highest:?} was acknowledged");
    // The agents of the stack get the new version at both replicas.
    for replica in 0..2 {
        eventually(WAIT_TIMEOUT, &format!("replica {replica} to serve the new version"), async || {
            let view = pair.agents[0].view(replica).await?;
            ensure!(view.stacks.iter().any(|(_, sequence)| *sequence == next), "{:?}", view.stacks);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Returns the highest acknowledged sequence id.
fn acknowledged(pair: &BrokerPair) -> Option<SequenceId> {
    let history = pair.recorder.snapshot();
    history.operations.iter().filter_map(|operation| Some(operation.object()?.1)).max()
}

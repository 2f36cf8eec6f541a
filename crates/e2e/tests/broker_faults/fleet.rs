//! Rows 17, 45 and 46: a replica with a silent database connection, a fleet that reconnects all at once, keys that are revoked
//! or rotated while an agent polls with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use brokkr_api::{ErrorCode, Position};
use brokkr_client::{AgentKey, Client, Credential, Poll};
use brokkr_testkit::eventually;
use brokkr_testkit::pgproxy::{Fault, Link, Matcher, When};

use crate::agents::FakeAgent;
use crate::broker_pair::BrokerPair;
use crate::clients::{ChangeRequest, object};
use crate::{RECOVERY_TIMEOUT, WAIT_TIMEOUT};
use brokkr_e2e::rounds;

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_replica_with_a_silent_database_reports_it_and_recovers() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for _ in 0..rounds(1, 3) {
        pair.proxies[0].set_link(Link::Blackhole);
        pair.wait_for_progress_at(1, 5).await?;
        pair.wait_until_degraded(0).await?;
        let agent = &pair.agents[0];
        let polled = agent.poll(0, &agent.ask(Position::default(), None, Duration::ZERO)).await?;
        ensure!(matches!(polled, Poll::Changed { .. }), "from memory: {polled:?}");
        pair.proxies[0].heal();
        // Connections that were open during the blackhole stay silent for ever and have to be closed.
        pair.wait_until_ready(0, WAIT_TIMEOUT).await?;
        pair.wait_for_progress(3).await?;
    }
    pair.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_45_a_fleet_that_reconnects_at_once_is_served_and_disturbs_no_other_client() -> Result<()> {
    let mut pair = BrokerPair::start().await?;
    let count = rounds(80, 2000);
    let herd = herd(&pair, count).await?;
    pair.start_load().await?;
    let disturbed = pair.unknown_outcomes_at(1, "");
    pair.replicas[0].restart().await?;
    let started = Instant::now();
    let polling = herd.iter().map(|agent| async move {
        let mut failures = 0;
        loop {
            match agent.poll(0, &agent.ask(Position::default(), None, Duration::ZERO)).await {
                Ok(Poll::Changed { spread, .. }) => break Ok((failures, spread)),
                Ok(Poll::HoldsWanted | Poll::Behind { .. }) | Err(_) if started.elapsed() < WAIT_TIMEOUT => {
                    failures += 1;
                }
                other => break Err(anyhow::anyhow!("{other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(rand::random_range(100..1000))).await;
        }
    });
    let served: Vec<(usize, Option<Duration>)> = futures::future::try_join_all(polling).await?;
    let failures: usize = served.iter().map(|(failures, _)| failures).sum();
    println!("{count} agents served within {:?}, {failures} failed attempts", started.elapsed());
    ensure!(failures <= count, "an error storm: {failures} failures of {count} agents");
    ensure!(served.iter().all(|(_, spread)| spread.is_some()), "every answer says how far to spread polls");
    pair.wait_for_progress(5).await?;
    let disturbed = pair.unknown_outcomes_at(1, "") - disturbed;
    ensure!(disturbed == 0, "{disturbed} requests to the other replica failed");
    pair.finish().await
}

/// Returns agents with a separate connection each.
async fn herd(pair: &BrokerPair, count: usize) -> Result<Vec<FakeAgent>> {
    let mut herd = Vec::with_capacity(count);
    for number in 0..count {
        let mut agent = FakeAgent::join(&pair.admins, &format!("herd-{number}"), "h", Arc::default()).await?;
        agent.clients = pair.clients(&Credential::Agent(agent.identity.clone()))?;
        herd.push(agent);
    }
    Ok(herd)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_46_a_revoked_key_is_rejected_at_every_replica_and_a_rotated_one_locks_no_agent_out() -> Result<()>
{
    let mut pair = BrokerPair::start().await?;
    pair.start_load().await?;
    for round in 0..rounds(2, 6) {
        revoked(&pair, round).await?;
        rotated(&pair, round).await?;
    }
    pair.wait_for_progress(3).await?;
    pair.finish().await
}

/// An agent waits at one replica while its key is revoked at the other.
async fn revoked(pair: &BrokerPair, round: usize) -> Result<()> {
    let (here, there) = (round % 2, (round + 1) % 2);
    let agent = FakeAgent::join(&pair.admins, &format!("leaver-{round}"), "none", Arc::default()).await?;
    let Poll::Changed { etag, position, .. } =
        eventually(RECOVERY_TIMEOUT, "the other replica to know the agent", async || {
            match agent.poll(there, &agent.ask(Position::default(), None, Duration::ZERO)).await {
                Ok(poll @ Poll::Changed { .. }) => Some(poll),
                _ => None,
            }
        })
        .await?
    else {
        anyhow::bail!("the poll got no state")
    };
    let waiting = tokio::spawn({
        let (agent, ask) = (agent.clone(), agent.ask(position, Some(etag), Duration::from_secs(60)));
        async move { agent.poll(there, &ask).await }
    });
    pair.admins[here].revoke_agent_keys(&agent.name).await?;
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    let refused = |polled: &Result<Poll, brokkr_client::ClientError>| {
        polled
            .as_ref()
            .is_err_and(|error| matches!(error.code(), Some(ErrorCode::BRK1001 | ErrorCode::BRK1009)))
    };
    ensure!(
        ended.as_ref().is_ok_and(|ended| ended.as_ref().is_ok_and(&refused)),
        "S16: the poll was not refused: {ended:?}"
    );
    for replica in 0..2 {
        let polled = agent.poll(replica, &agent.ask(Position::default(), None, Duration::ZERO)).await;
        ensure!(refused(&polled), "S16: replica {replica} still serves a revoked key: {polled:?}");
    }
    Ok(())
}

/// The response to the rotation is lost: both keys work, and a repeated rotation has the same result.
async fn rotated(pair: &BrokerPair, round: usize) -> Result<()> {
    let (here, there) = (round % 2, (round + 1) % 2);
    let agent = FakeAgent::join(&pair.admins, &format!("changer-{round}"), "none", Arc::default()).await?;
    let key = AgentKey::generate()?;
    let wanted = agent.identity.key_change(&key)?;
    eventually(RECOVERY_TIMEOUT, "the replica to know the agent", async || {
        agent.poll(here, &agent.ask(Position::default(), None, Duration::ZERO)).await
    })
    .await?;
    let lost = pair.proxies[here].when(Matcher::commit_of("old_public_key").nth(1), When::After, Fault::Cut);
    let first = agent.clients[here].rotate_key(agent.id, &wanted).await;
    ensure!(first.is_err() && lost.hits() == 1, "the response should have been lost: {first:?}");
    let changed = agent.with_key(&pair.admins, key);
    for replica in [here, there] {
        for (which, agent) in [("old", &agent), ("new", &changed)] {
            eventually(
                RECOVERY_TIMEOUT,
                &format!("replica {replica} to accept the {which} key"),
                async || agent.poll(replica, &agent.ask(Position::default(), None, Duration::ZERO)).await,
            )
            .await?;
        }
    }
    changed.clients[there].rotate_key(agent.id, &wanted).await?;
    object(&pair.caller.send_until_known(here, ChangeRequest::submit("web", 10)).await)?;
    Ok(())
}

impl BrokerPair {
    /// Returns a client for each replica, with separate connections.
    pub fn clients(&self, credential: &Credential) -> Result<Vec<Client>> {
        let build = |replica: &brokkr_testkit::Broker| {
            let pem = std::fs::read(replica.authority_file())?;
            let client = Client::builder(replica.url().parse()?).ca_pem(pem).credential(credential.clone());
            Ok(client.build()?)
        };
        self.replicas.iter().map(build).collect()
    }
}

//! The engine of upgrades of agents: as for the versions of stacks, and under the same lease.

use brokkr_api::UpgradeId;
use brokkr_api::names::DEFAULT_PROJECT;
use sqlx::PgPool;

use super::LEASE_SECONDS;
use crate::domain::rollout::Decision;
use crate::domain::rollout::survey::Contacts;
use crate::state::Broker;
use crate::store::agent_upgrades::{
    ActiveUpgrade, agent_upgrade_evidence_on_conn, agent_upgrade_lock_on_conn, agent_upgrade_store_on_conn,
    agent_upgrade_under_way_on_conn,
};
use crate::store::leases::{Lease, lease_hold_on_conn};
use crate::store::outbox::{OutboxNotification, outbox_insert_on_conn, outbox_transaction_id_on_conn};
use crate::store::rollouts::RolloutUpdate;
use crate::store::{Doing as _, StoreError};

/// Looks at the agents of an upgrade, and takes the next step. Returns false if another replica has the lease.
pub async fn look(
    broker: &Broker,
    pool: &PgPool,
    lease: Lease,
    contacts: &Contacts,
    id: UpgradeId,
) -> Result<bool, StoreError> {
    // Reading takes long in a large fleet: outside of the transaction.
    let mut connection = pool.acquire().await.doing("look at an upgrade of agents")?;
    let seen = agent_upgrade_under_way_on_conn(&mut connection, id).await?;
    let Some(seen) = seen else { return Ok(true) };
    // Otherwise the index may know the upgrade, but not yet an agent that joined before it.
    if broker.index.position().horizon <= seen.begun_by {
        return Ok(true);
    }
    let evidence = agent_upgrade_evidence_on_conn(&mut connection, &seen, contacts).await?;
    drop(connection);
    let survey = {
        let snapshot = broker.index.snapshot();
        snapshot.survey_upgrade((id, seen.revision), seen.rollout.selector(), &evidence, seen.now)
    };
    // This replica is behind: it looks again soon.
    let Some(mut survey) = survey else { return Ok(true) };
    let mut transaction = pool.begin().await.doing("begin a step of an upgrade of agents")?;
    let conn = &mut *transaction;
    if !lease_hold_on_conn(conn, lease, LEASE_SECONDS).await? {
        return Ok(false);
    }
    // Neither a user nor another replica has come in between.
    let state = |upgrade: &ActiveUpgrade| (upgrade.revision, upgrade.looked_at);
    let is_same = |now: &ActiveUpgrade| state(now) == state(&seen) && now.rollout == seen.rollout;
    let before = agent_upgrade_lock_on_conn(conn, id).await?.filter(is_same);
    let Some(before) = before else { return Ok(true) };
    let mut after = before.rollout.clone();
    let (elapsed, watched_since) = seen.watched();
    let Some(decision) = after.step(&mut survey, elapsed) else { return Ok(true) };
    let pending = if let Decision::Wait(pending) = decision { Some(pending) } else { None };
    let look = RolloutUpdate { at: seen.now, figures: survey.figures, pending, watched_since };
    if agent_upgrade_store_on_conn(conn, &before, &after, &look).await? {
        outbox_insert_on_conn(conn, DEFAULT_PROJECT, OutboxNotification::AgentUpgrades).await?;
    }
    let xid = outbox_transaction_id_on_conn(conn).await?;
    transaction.commit().await.doing("commit a step of an upgrade of agents")?;
    if !matches!(decision, Decision::Wait(_)) {
        tracing::info!(upgrade = %id, ?decision, figures = ?survey.figures, "took a step of an upgrade of agents");
        broker.tail.committed(xid);
    }
    Ok(true)
}

//! The engine of rollouts: looks at the agents of each open rollout, and takes its next step. `upgrades` does the same for upgrades of
//! agents.
//!
//! Waits for: a timer (1 s), and for rollouts that begin or take a step. Without a rollout in the index, this does nothing, and
//! asks the database nothing. One replica at a time does this, under a lease; each transaction checks the lease's fencing token,
//! so that a replica that was paused takes no step. A step is one transaction: a crash leaves all of it or nothing.

mod upgrades;

use std::sync::Arc;
use std::time::Duration;

use brokkr_api::StackId;
use brokkr_api::reason::Message;
use brokkr_api::rollouts::{Pending, RolloutState};
use brokkr_api::webhooks::WebhookEvent;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::rollout::survey::Contacts;
use crate::domain::rollout::verdict::Contact;
use crate::domain::rollout::{Decision, Rollout};
use crate::domain::webhooks::happening::{Happening, NamedStack};
use crate::state::Broker;
use crate::store::leases::{Lease, lease_hold_on_conn, lease_release_on_conn, lease_take_on_conn};
use crate::store::outbox::{OutboxNotification, outbox_insert_on_conn, outbox_transaction_id_on_conn};
use crate::store::rollouts::{
    ActiveRollout, RolloutUpdate, rollout_complete_on_conn, rollout_contacts_on_conn,
    rollout_evidence_on_conn, rollout_lock_on_conn, rollout_store_on_conn, rollout_under_way_on_conn,
};
use crate::store::stacks::{StackRef, stack_lock_on_conn};
use crate::store::webhook_notices::webhook_notify_on_conn;
use crate::store::{Doing as _, StoreError};

/// The name of the lease. Its holder is the only one that takes steps.
pub const LEASE: &str = "rollouts";
const LEASE_SECONDS: f64 = 10.0;
const EVERY: Duration = Duration::from_secs(1);
/// After looks that take long, the pause is longer, so that they take only a part of the time.
const PART: u32 = 10;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub async fn run(broker: Arc<Broker>, pool: PgPool, stop: CancellationToken) {
    let holder = Uuid::now_v7();
    let mut lease = None;
    loop {
        let started = tokio::time::Instant::now();
        match round(&broker, &pool, holder).await {
            Ok(held) => lease = held,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to look at the rollouts; retrying in a second");
            }
        }
        let rest = (started.elapsed() * PART).min(LONGEST_PAUSE);
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(rest.max(EVERY)) => {}
            () = next(&broker, rest) => {}
        }
    }
    if let Some(lease) = lease
        && let Ok(mut connection) = pool.acquire().await
    {
        // Without this, the next replica would have to wait until the lease expires.
        let _ = lease_release_on_conn(&mut connection, lease).await;
    }
}

/// Waits until a rollout begins or takes a step, but at least for this time.
async fn next(broker: &Broker, rest: Duration) {
    tokio::time::sleep(rest).await;
    broker.index.rollout_changed().await;
}

/// Looks at every open rollout, if this replica has the lease.
async fn round(broker: &Broker, pool: &PgPool, holder: Uuid) -> Result<Option<Lease>, StoreError> {
    let (rolling, upgrades) = {
        let snapshot = broker.index.snapshot();
        (snapshot.rolling(), snapshot.rolling_upgrades())
    };
    if rolling.is_empty() && upgrades.is_empty() || broker.restore.hold().is_some() {
        return Ok(None);
    }
    // A replica that does not see what happens must neither decide nor keep the others from it.
    if broker.stale().is_some() {
        return Ok(None);
    }
    let mut connection = pool.acquire().await.doing("look at the rollouts")?;
    let lease = lease_take_on_conn(&mut connection, LEASE, holder, LEASE_SECONDS).await?;
    let Some(lease) = lease else { return Ok(None) };
    let mut contacts = rollout_contacts_on_conn(&mut connection).await?;
    drop(connection);
    // When an agent has connected for the first time is stored only after a while.
    contacts.absent.retain(|agent, contact| {
        *contact != Contact::Silent(None) || broker.presence.last_seen(*agent).is_none()
    });
    for (project, stack) in rolling {
        match look(broker, pool, lease, &contacts, &project, stack).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(stack_id = %stack, error, "failed to look at a rollout; retrying in a second");
            }
        }
    }
    for upgrade in upgrades {
        match upgrades::look(broker, pool, lease, &contacts, upgrade).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%upgrade, error, "failed to look at an upgrade of agents; retrying in a second");
            }
        }
    }
    Ok(Some(lease))
}

/// Looks at the agents of a rollout, and takes the next step. Returns false if another replica has the lease.
pub async fn look(
    broker: &Broker,
    pool: &PgPool,
    lease: Lease,
    contacts: &Contacts,
    project: &str,
    stack: StackId,
) -> Result<bool, StoreError> {
    // Reading takes long in a large fleet: outside of the transaction, which would delay every change of others until it ends.
    let mut connection = pool.acquire().await.doing("look at a rollout")?;
    let seen = rollout_under_way_on_conn(&mut connection, project, stack).await?;
    let Some(seen) = seen else { return Ok(true) };
    // Otherwise the index may know the rollout, but not yet an agent that joined before it.
    if broker.index.position().horizon <= seen.begun_by {
        return Ok(true);
    }
    let evidence = rollout_evidence_on_conn(&mut connection, &seen, contacts).await?;
    drop(connection);
    let survey = {
        let version = (seen.sequence_id, seen.revision);
        let snapshot = broker.index.snapshot();
        snapshot.survey(stack, version, seen.rollout.selector(), &evidence, seen.now)
    };
    // This replica is behind: it looks again soon.
    let Some(mut survey) = survey else { return Ok(true) };
    let mut transaction = pool.begin().await.doing("begin a step of a rollout")?;
    let conn = &mut *transaction;
    if !lease_hold_on_conn(conn, lease, LEASE_SECONDS).await? {
        return Ok(false);
    }
    let Some(locked) = stack_lock_on_conn(conn, project, &StackRef::Id(stack)).await? else {
        return Ok(true);
    };
    let before = rollout_lock_on_conn(conn, &locked).await?;
    // Neither a user nor another replica has come in between.
    let state = |rollout: &ActiveRollout| (rollout.sequence_id, rollout.revision, rollout.looked_at);
    let is_same = |now: &ActiveRollout| state(now) == state(&seen) && now.rollout == seen.rollout;
    let Some(before) = before.filter(is_same) else { return Ok(true) };
    let mut after = before.rollout.clone();
    let (elapsed, watched_since) = seen.watched();
    let Some(decision) = after.step(&mut survey, elapsed) else { return Ok(true) };
    let pending = if let Decision::Wait(pending) = decision { Some(pending) } else { None };
    let look = RolloutUpdate { at: seen.now, figures: survey.figures, pending, watched_since };
    if rollout_store_on_conn(conn, &before, &after, &look).await? {
        outbox_insert_on_conn(conn, project, OutboxNotification::Stack(stack)).await?;
    }
    let is_deleted = decision == Decision::Complete && rollout_complete_on_conn(conn, &before).await?;
    let mut notified = false;
    for event in event(&decision, &before.rollout, &after)
        .into_iter()
        .chain(is_deleted.then_some(WebhookEvent::StackDeleted))
    {
        let named = NamedStack { id: stack, name: locked.name.clone() };
        let happening = Happening::of_stack(event, before.now, named, before.sequence_id);
        let message = after.stop_reason.as_ref().map(|reason| Message::new(reason.to_string()));
        let happening = Happening { message: message.unwrap_or_default(), ..happening };
        notified |= webhook_notify_on_conn(conn, project, &happening).await?;
    }
    let xid = outbox_transaction_id_on_conn(conn).await?;
    transaction.commit().await.doing("commit a step of a rollout")?;
    if !matches!(decision, Decision::Wait(_)) {
        tracing::info!(stack_id = %stack, sequence_id = %before.sequence_id, ?decision, figures = ?survey.figures, "took a step of a rollout");
        broker.tail.committed(xid);
    }
    if notified {
        broker.webhooks.notify();
    }
    Ok(true)
}

/// Returns the event that webhooks receive for a step.
fn event(decision: &Decision, before: &Rollout, after: &Rollout) -> Option<WebhookEvent> {
    match decision {
        Decision::Stop(_) => Some(WebhookEvent::RolloutStopped),
        Decision::Complete => Some(WebhookEvent::RolloutCompleted),
        Decision::Wait(Pending::Gate { .. }) => {
            (before.state != RolloutState::Gated).then_some(WebhookEvent::RolloutGateOpened)
        }
        _ => (after.wave > before.wave).then_some(WebhookEvent::RolloutAdvanced),
    }
}

//! Stores reports, in groups: one transaction for the batches of many agents.
//!
//! Waits for: batches in the queue, and the transaction of a group. A batch of an agent of which another transaction stores
//! reports is stored on its own, by a task that waits for its turn. A group that fails because of one of its batches is stored
//! batch by batch, so that no agent can make the reports of others fail.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::domain::filing::{Filed, FiledBatch, newest_of_each_stack};
use crate::state::Broker;
use crate::state::report_queue::{PATIENCE, PendingBatch, QUEUE, StoredBatch};
use crate::store::events::{
    event_find_on_conn, event_insert_on_conn, event_lock_agent_on_conn, event_remember_clamped_on_conn,
    event_try_lock_agents_on_conn,
};
use crate::store::holds::holds_raise_on_conn;
use crate::store::outbox::outbox_transaction_id_on_conn;
use crate::store::reasons::reason_insert_on_conn;
use crate::store::stack_status::{stack_status_store_conditions_on_conn, stack_status_store_on_conn};
use crate::store::webhook_notices::webhook_notify_reports_on_conn;
use crate::store::{Doing as _, StoreError};
use crate::telemetry::TRACES;

/// Groups that are stored at the same time. A second one uses the time in which the first waits for the disk.
pub const WRITERS: usize = 2;
/// How long the batches of a failed group are stored one after the other. Those that are left are refused.
const FAILED_GROUP: Duration = Duration::from_secs(10);

/// Stores reports until stopped. Then no request is left that could send any.
pub async fn run(broker: Arc<Broker>, stop: CancellationToken) {
    let mut alone = JoinSet::new();
    let mut failed_group: Option<JoinHandle<()>> = None;
    loop {
        let group = tokio::select! {
            biased;
            group = broker.reports.next_group() => group,
            () = stop.cancelled() => break,
        };
        // On a task of its own: if it panics, only the requests of this group fail.
        let stored = tokio::spawn(store_group(Arc::clone(&broker), group));
        // Nothing below waits: otherwise batches that wait for a lock would delay those of all other agents.
        match stored.await {
            Ok(Unstored::Busy(batches)) => {
                for pending in batches {
                    if alone.len() < QUEUE {
                        alone.spawn(store_busy(Arc::clone(&broker), pending));
                    } else {
                        pending.refuse();
                    }
                }
            }
            Ok(Unstored::Failed(batches)) if failed_group.as_ref().is_none_or(JoinHandle::is_finished) => {
                failed_group = Some(tokio::spawn(store_each(Arc::clone(&broker), batches)));
            }
            Ok(Unstored::Failed(batches)) => {
                tracing::warn!(
                    batches = batches.len(),
                    "refused reports: the batches of another failed group are still being stored"
                );
                batches.into_iter().for_each(PendingBatch::refuse);
            }
            Err(_) => {}
        }
        while alone.try_join_next().is_some() {}
    }
    while alone.join_next().await.is_some() {}
    if let Some(failed_group) = failed_group {
        let _ = failed_group.await;
    }
}

/// The batches of a group that were not stored with it.
enum Unstored {
    /// Another transaction is storing reports of these agents.
    Busy(VecDeque<PendingBatch>),
    /// A statement failed, perhaps because of one of these batches.
    Failed(VecDeque<PendingBatch>),
}

/// Stores a group and answers its requests. Returns the batches that have to be stored on their own.
async fn store_group(broker: Arc<Broker>, group: VecDeque<PendingBatch>) -> Unstored {
    let batches: Vec<&FiledBatch> = group.iter().map(|pending| &pending.batch).collect();
    match store(&broker, &batches, Lock::Try).await {
        Ok(mut stored) => {
            // In reverse, because they are taken from the end.
            stored.reverse();
            let mut busy = VecDeque::new();
            for pending in group {
                match stored.pop().flatten() {
                    Some(stored) => pending.finish(Ok(stored)),
                    None => busy.push_back(pending),
                }
            }
            Unstored::Busy(busy)
        }
        Err(error) if group.len() > 1 && error.is_of_statement() => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                batches = group.len(),
                "failed to store reports together; each batch has to be stored alone"
            );
            Unstored::Failed(group)
        }
        Err(error) => {
            let error = Arc::new(error);
            group.into_iter().for_each(|pending| pending.finish(Err(Arc::clone(&error).into())));
            Unstored::Busy(VecDeque::new())
        }
    }
}

/// Stores the batches of a failed group one after the other. Waits for permits and for the database, for [`FAILED_GROUP`]
/// at most and for the batch that is being stored then.
async fn store_each(broker: Arc<Broker>, batches: VecDeque<PendingBatch>) {
    let end = Instant::now() + FAILED_GROUP;
    for pending in batches {
        match timeout_at(end, Arc::clone(&broker.reports.alone).acquire_owned()).await {
            Ok(Ok(permit)) if Instant::now() < end => {
                // On a task of its own: if it panics, only this request fails.
                let _ = tokio::spawn(store_alone(Arc::clone(&broker), pending, permit)).await;
            }
            _ => pending.refuse(),
        }
    }
}

/// Stores a batch of an agent of which another transaction was storing reports. Two replicas that get the reports of the
/// same agents at the same time do this for many agents at once, so the batch waits for its turn.
async fn store_busy(broker: Arc<Broker>, pending: PendingBatch) {
    match timeout(PATIENCE, Arc::clone(&broker.reports.alone).acquire_owned()).await {
        Ok(Ok(permit)) => store_alone(broker, pending, permit).await,
        _ => pending.refuse(),
    }
}

async fn store_alone(broker: Arc<Broker>, pending: PendingBatch, permit: OwnedSemaphorePermit) {
    let stored = store(&broker, &[&pending.batch], Lock::Wait).await;
    drop(permit);
    // None is returned only for agents of which the lock was not waited for.
    let stored = stored.map(|mut stored| stored.pop().flatten());
    match stored {
        Ok(None) => drop(pending),
        Ok(Some(stored)) => pending.finish(Ok(stored)),
        Err(error) => pending.finish(Err(error.into())),
    }
}

/// What to do if another transaction is storing reports of the same agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// Leave out the agent: the others must not wait for it.
    Try,
    /// Wait a short time, then fail.
    Wait,
}

/// Stores batches of different agents in one transaction. Returns what was stored of each; none for an agent that was left
/// out.
async fn store(
    broker: &Broker,
    batches: &[&FiledBatch],
    lock: Lock,
) -> Result<Vec<Option<StoredBatch>>, StoreError> {
    let mut transaction = broker.pool.begin().await.doing("begin a transaction")?;
    let conn = &mut *transaction;
    let busy = match (lock, batches) {
        (Lock::Wait, [batch]) => {
            event_lock_agent_on_conn(conn, batch.agent).await?;
            HashSet::new()
        }
        _ => {
            let agents: Vec<_> = batches.iter().map(|batch| batch.agent).collect();
            event_try_lock_agents_on_conn(conn, &agents).await?
        }
    };
    let stored = || batches.iter().filter(|batch| !busy.contains(&batch.agent));
    let filed = || stored().flat_map(|batch| &batch.filed);
    // A copy of a report with a replaced time does not conflict with the first one.
    let clamped: Vec<&Filed> = filed().filter(|filed| filed.clamped).collect();
    let known = match clamped.is_empty() {
        true => HashSet::new(),
        false => event_find_on_conn(conn, &clamped).await?,
    };
    let unknown: Vec<&Filed> = filed().filter(|filed| !known.contains(&filed.report.id)).collect();
    let new = event_insert_on_conn(conn, &unknown).await?;
    if !clamped.is_empty() {
        event_remember_clamped_on_conn(conn, &clamped).await?;
    }
    let applied: Vec<_> = stored()
        .flat_map(|batch| batch.applied.iter().map(|(stack, version)| (batch.agent, *stack, *version)))
        .collect();
    if !applied.is_empty() {
        holds_raise_on_conn(conn, &applied).await?;
    }
    let new_ones = || filed().filter(|filed| new.contains(&filed.report.id));
    let is_state = |filed: &&Filed| filed.report.transition.is_state();
    let newest = newest_of_each_stack(new_ones().filter(is_state));
    if !newest.is_empty() {
        reason_insert_on_conn(conn, &newest).await?;
        stack_status_store_on_conn(conn, &newest).await?;
    }
    // A repair or a suspension is an event and changes no state, but its conditions may name a field that another manager changes.
    let others = newest_of_each_stack(new_ones().filter(|filed| !is_state(filed)));
    if !others.is_empty() {
        stack_status_store_conditions_on_conn(conn, &others).await?;
    }
    let reports: Vec<_> = new_ones().map(|filed| (filed.agent, &filed.report)).collect();
    let notified = match reports.is_empty() {
        true => false,
        false => {
            let (now, grace) = (Timestamp::now(), broker.webhooks.grace);
            webhook_notify_reports_on_conn(conn, &reports, now, grace).await?
        }
    };
    let xid = outbox_transaction_id_on_conn(conn).await?;
    let span = tracing::info_span!(target: TRACES, "commit");
    transaction.commit().instrument(span).await.doing("commit")?;
    if notified {
        broker.webhooks.notify();
    }
    new_ones().for_each(|filed| broker.metrics.reported(&filed.report));
    let new_of = |batch: &FiledBatch| {
        batch.filed.iter().map(|filed| filed.report.id).filter(|id| new.contains(id)).collect()
    };
    let outcome =
        |batch: &&FiledBatch| (!busy.contains(&batch.agent)).then(|| StoredBatch { new: new_of(batch), xid });
    Ok(batches.iter().map(outcome).collect())
}

//! Follows what agents report, for the views of a fleet.
//!
//! Waits for: a timer (250 ms). It loads everything once, after the broker has begun to serve, and then reads the events up to the
//! horizon that the index has reached: every transaction below it has ended, so a report that commits late is not skipped, and the
//! index knows each stack and agent that it is about. An event only says *which* agent reported; its last report is read in the same
//! statement, so that reading an event again does no harm. Nothing is stored: a replica that starts again loads again.
//!
//! It loads again when the index gives other slots to the agents, after a restore, after a panic, and when it has not read for so long
//! that events may have been deleted.

mod cursor;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::fleet::ViewFreshness;
use brokkr_api::{AgentId, StackId};
use futures::stream::TryChunksError;
use futures::{FutureExt as _, TryStreamExt as _};
use jiff::Timestamp;
use sqlx::PgPool;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::finished;
use crate::domain::fleet::StoredOutcome;
use crate::index::{Index, Reread};
use crate::store::events::EventCursor;
use crate::store::outcomes::{
    agents_silent, outcomes_follow, outcomes_of_agents, outcomes_of_stacks, outcomes_send_on_conn,
};
use crate::store::{CopyConnection, Doing as _, StoreError};
use cursor::{Cursor, Moment};

const TICK: Duration = Duration::from_millis(250);
const AFTER_PANIC: Duration = Duration::from_secs(5);
/// Agents become silent after minutes, and one replica looks for them every 15 s.
const SILENT_EVERY: Duration = Duration::from_secs(5);
/// Reports of one statement.
const BATCH: usize = 5000;
/// Agents of which one statement reads everything.
const AGENTS: usize = 100;
/// Batches that wait to be applied.
const WAITING: usize = 2;

/// Applies reports until stopped.
pub async fn run(index: Arc<Index>, pool: PgPool, stop: CancellationToken) {
    let tail = OutcomeTail { index, pool };
    let (mut cursor, mut failing) = (None, false);
    loop {
        // A load takes a while. Nothing is lost if it ends in the middle.
        let step = tokio::select! {
            () = stop.cancelled() => return,
            step = unless_panics(&tail.index, tail.step(cursor)) => step,
        };
        let mut pause = TICK;
        match step {
            None => (cursor, pause) = (None, AFTER_PANIC),
            Some(Ok(next)) => {
                (cursor, failing) = (next, false);
            }
            Some(Err(error)) => {
                if !std::mem::replace(&mut failing, true) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "failed to read reports for the views of the fleet; retrying");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Returns the result of a step. If it panics, returns none and forgets what was applied, so that it is loaded again: without this
/// task, views would show what was reported before, and say that it is current.
async fn unless_panics<T>(index: &Index, step: impl Future<Output = T>) -> Option<T> {
    let ended = AssertUnwindSafe(step).catch_unwind().await.ok();
    if ended.is_none() {
        tracing::error!(
            "failed to follow what agents have reported, because of a bug; loading again in {AFTER_PANIC:?}"
        );
        index.forget_outcomes();
    }
    ended
}

#[derive(Debug)]
struct OutcomeTail {
    index: Arc<Index>,
    pool: PgPool,
}

impl OutcomeTail {
    /// Applies what was reported since the cursor, or everything. Returns none if the slots were renumbered meanwhile.
    async fn step(&self, cursor: Option<Cursor>) -> Result<Option<Cursor>, StoreError> {
        let numbering = self.index.outcomes().numbering();
        // Before anything is read: what is read is at least as new.
        let now = Moment::of(&self.index.freshness());
        let before = cursor.filter(|cursor| cursor.continues(numbering, now.position));
        let next = match before {
            Some(cursor) => self.follow(cursor, now).await?,
            None => self.load(numbering, now).await?,
        };
        let Some(next) = next else { return Ok(None) };
        if !self.reread(numbering).await? {
            return Ok(None);
        }
        let freshness = ViewFreshness { complete: true, as_of: Some(next.as_of), position: now.position };
        Ok(self.index.outcomes_are_current(numbering, freshness).then_some(next))
    }

    /// Loads what every agent has last reported. Reports from `now` on are read again by the next step: those of agents that the
    /// index did not know yet are among them.
    async fn load(&self, numbering: u64, now: Moment) -> Result<Option<Cursor>, StoreError> {
        let doing = "begin to load what agents have reported";
        // What is committed by now is loaded, also above the position.
        let (started, as_of) = (Instant::now(), Timestamp::now());
        let mut conn = CopyConnection::begin(&self.pool).await.doing(doing)?;
        conn.disable_timeout().await.doing(doing)?;
        let (sender, mut receiver) = mpsc::channel(WAITING);
        // Each side ends when the other one does.
        let reading = async move { outcomes_send_on_conn(&mut conn, &sender).await };
        let applying = async move {
            let mut pairs = 0;
            while let Some(batch) = receiver.recv().await {
                pairs += batch.len();
                if !self.apply(numbering, batch).await {
                    return None;
                }
            }
            Some(pairs)
        };
        let (read, applied) = tokio::join!(reading, applying);
        read?;
        let Some(pairs) = applied else { return Ok(None) };
        let read_at = Instant::now();
        if !self.read_silent(numbering).await? {
            return Ok(None);
        }
        let (bytes, millis) = (self.index.outcomes().memory(), started.elapsed().as_millis());
        tracing::info!(pairs, bytes, millis, "loaded what agents have reported");
        let position = now.position;
        Ok(Some(Cursor { numbering, position, as_of, awaited: now, read_at, silent_at: read_at }))
    }

    /// Applies the reports below the position.
    async fn follow(&self, cursor: Cursor, now: Moment) -> Result<Option<Cursor>, StoreError> {
        let mut cursor = Cursor { read_at: Instant::now(), ..cursor };
        let mut after = EventCursor::before(cursor.position.horizon);
        let horizon = now.position.horizon;
        let mut is_done = cursor.position.horizon == horizon;
        while !is_done {
            let batch = outcomes_follow(&self.pool, after, horizon, BATCH).await?;
            is_done = batch.len() < BATCH;
            if let Some(last) = batch.last() {
                after = last.place;
            }
            let outcomes = batch.into_iter().map(|followed| followed.outcome).collect();
            if !self.apply(cursor.numbering, outcomes).await {
                return Ok(None);
            }
        }
        cursor.reach(now);
        if cursor.silent_at.elapsed() >= SILENT_EVERY {
            if !self.read_silent(cursor.numbering).await? {
                return Ok(None);
            }
            cursor.silent_at = Instant::now();
        }
        Ok(Some(cursor))
    }

    async fn read_silent(&self, numbering: u64) -> Result<bool, StoreError> {
        let silent = agents_silent(&self.pool).await?;
        Ok(self.off_thread(move |index| index.set_silent(numbering, &silent)).await)
    }

    /// Reads again what may have changed without a report. Returns false if the slots were renumbered.
    async fn reread(&self, numbering: u64) -> Result<bool, StoreError> {
        let mut reread = self.index.take_reread();
        let done = self.reread_all(numbering, &mut reread).await;
        // Nothing, unless it failed.
        self.index.give_back_reread(reread);
        done
    }

    /// Removes from the set what was read again.
    async fn reread_all(&self, numbering: u64, reread: &mut Reread) -> Result<bool, StoreError> {
        if !reread.stacks.is_empty() {
            let stacks: Vec<StackId> = reread.stacks.iter().copied().collect();
            let mut batches = outcomes_of_stacks(&self.pool, &stacks).try_chunks(BATCH);
            while let Some(batch) = batches.try_next().await.map_err(|TryChunksError(_, error)| error)? {
                if !self.apply(numbering, batch).await {
                    return Ok(false);
                }
            }
            reread.stacks.clear();
        }
        while !reread.agents.is_empty() {
            let agents: Vec<AgentId> = reread.agents.iter().copied().take(AGENTS).collect();
            let stored = outcomes_of_agents(&self.pool, &agents).await?;
            agents.iter().for_each(|agent| {
                reread.agents.remove(agent);
            });
            if !self.off_thread(move |index| index.replace_outcomes_of(numbering, &agents, &stored)).await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn apply(&self, numbering: u64, batch: Vec<StoredOutcome>) -> bool {
        self.off_thread(move |index| index.change_outcomes(numbering, &batch)).await
    }

    /// Changes the index on a blocking thread: a change may be about every stack or agent, and must not delay requests.
    async fn off_thread(&self, change: impl FnOnce(&Index) -> bool + Send + 'static) -> bool {
        let index = Arc::clone(&self.index);
        finished(tokio::task::spawn_blocking(move || change(&index)).await)
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::InstallationId;

    use super::*;

    #[tokio::test]
    async fn after_a_panic_everything_is_loaded_again() {
        let index = Index::new(InstallationId::generate());
        let (numbering, current) =
            (index.outcomes().numbering(), ViewFreshness { complete: true, ..ViewFreshness::default() });
        assert!(index.outcomes_are_current(numbering, current));
        assert_eq!(unless_panics(&index, async { 1 }).await, Some(1));
        assert!(index.outcomes().freshness().complete);
        // As in `off_thread`.
        let panics =
            async { finished(tokio::task::spawn_blocking(|| -> bool { panic!("as a bug might") }).await) };
        assert_eq!(unless_panics(&index, panics).await, None);
        assert!(!index.outcomes().freshness().complete && index.outcomes().numbering() != numbering);
    }
}

//! Takes what changed into the index.
//!
//! Waits for: a timer (200 ms), or a commit of this replica. After a commit it looks every 10 ms until the
//! horizon has passed that transaction, for a second at most; then the timer goes on. What it reads is
//! only *what* changed; how it is now is read in the same snapshot, so a bell that rang twice, or for
//! something that was taken in already, does no harm.

mod agreement;
mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::{AgentId, Position, StackId};
use jiff::{SignedDuration, Timestamp};
use sqlx::{PgConnection, PgPool};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::index::{Changes, Index, Seen};
use crate::state::tail_notifier::TailNotifier;
use crate::store::facts::{facts_of_agents_on_conn, facts_of_stacks_on_conn};
use crate::store::grants::facts_of_all_grants_on_conn;
use crate::store::outbox::{
    Doorbell, FROZEN, Snapshot, outbox_end_cut_off, outbox_highest_on_conn, outbox_read_on_conn,
    outbox_snapshot_on_conn,
};
use crate::store::{Doing as _, StoreError};
use agreement::Rounds;

const TICK: Duration = Duration::from_millis(200);
const HURRY: Duration = Duration::from_millis(10);
const HURRY_AT_MOST: Duration = Duration::from_secs(1);
/// The server ends a statement after 30 s. Longer than this only one takes whose server cannot be heard any more.
const SILENT: Duration = Duration::from_secs(40);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Rows live an hour. A cursor that is nearly as old loads everything anew.
const OLDEST_CURSOR: SignedDuration = SignedDuration::from_mins(50);
/// A horizon that stands still this long is worth a line in the log.
const STALLED: SignedDuration = SignedDuration::from_secs(30);

/// So long nobody waits for the rest of a request that is on its way.
const CUT_OFF: Duration = Duration::from_secs(15);

/// Up to where the outbox has been taken in.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    snapshot: Snapshot,
    /// When the horizon last moved, by the database's clock.
    moved: Timestamp,
}

impl Cursor {
    fn at(snapshot: Snapshot) -> Self {
        Self { snapshot, moved: snapshot.now }
    }
}

#[derive(Debug)]
pub struct OutboxTail {
    pool: PgPool,
    index: Arc<Index>,
    notifier: TailNotifier,
}

impl OutboxTail {
    #[must_use]
    pub fn new(pool: PgPool, index: Arc<Index>, notifier: TailNotifier) -> Self {
        Self { pool, index, notifier }
    }

    /// Tails until told to stop.
    pub async fn run(self, mut cursor: Cursor, stop: CancellationToken) {
        let mut failing = false;
        let mut rounds = Rounds::new(Instant::now());
        loop {
            self.notifier.beat();
            let slices = rounds.due(Instant::now(), self.index.picture().agents());
            let looked = match slices {
                Some(slices) => self.check(cursor, slices).await,
                None => self.step(cursor).await,
            };
            let pause = match looked {
                Ok(next) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the outbox can be read again");
                    }
                    cursor = next;
                    TICK
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::error!(
                            error,
                            "the outbox cannot be read; polls are answered from what is known"
                        );
                    }
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.notifier.notified() => cursor = self.hurry(cursor).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks often until the horizon has passed what was committed here.
    async fn hurry(&self, mut cursor: Cursor) -> Cursor {
        let until = Instant::now() + HURRY_AT_MOST;
        while cursor.snapshot.horizon <= self.notifier.highest() && Instant::now() < until {
            match self.step(cursor).await {
                Ok(next) => cursor = next,
                // The loop outside tells about it.
                Err(_) => return cursor,
            }
            if cursor.snapshot.horizon <= self.notifier.highest() {
                tokio::time::sleep(HURRY).await;
            }
        }
        cursor
    }

    /// Takes in what is between the cursor and the horizon, and moves the cursor there.
    pub async fn step(&self, cursor: Cursor) -> Result<Cursor, StoreError> {
        let reading = async {
            let mut transaction = self.pool.begin_with(FROZEN).await.doing("begin to read the outbox")?;
            let next = self.step_on_conn(&mut transaction, cursor).await?;
            transaction.commit().await.doing("end reading the outbox")?;
            Ok(next)
        };
        let next = tokio::time::timeout(SILENT, reading).await.unwrap_or_else(|_| {
            Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())).doing("read the outbox in time")
        })?;
        let Some(next) = next else { return self.load().await };
        let stands = next.snapshot.horizon == cursor.snapshot.horizon;
        if stands && next.snapshot.horizon < next.snapshot.ceiling && next.moved != cursor.moved {
            self.end_what_was_cut_off().await;
        }
        Ok(next)
    }

    /// The horizon has stood still for a while. If that is because a request was cut in two, nobody else ends it.
    async fn end_what_was_cut_off(&self) {
        match outbox_end_cut_off(&self.pool, CUT_OFF).await {
            Ok(0) => {}
            Ok(sessions) => tracing::warn!(sessions, "ended sessions whose requests were cut off"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "sessions whose requests were cut off were not ended");
            }
        }
    }

    /// The same in a frozen transaction; none if the outbox does not go on from the cursor.
    async fn step_on_conn(
        &self,
        connection: &mut PgConnection,
        cursor: Cursor,
    ) -> Result<Option<Cursor>, StoreError> {
        let snapshot = outbox_snapshot_on_conn(connection).await?;
        if !continues(&cursor.snapshot, &snapshot) {
            tracing::warn!(
                epoch = snapshot.epoch,
                horizon = snapshot.horizon,
                "the outbox does not go on; loading anew"
            );
            return Ok(None);
        }
        let bells = if snapshot.horizon > cursor.snapshot.horizon {
            outbox_read_on_conn(connection, cursor.snapshot.horizon, snapshot.horizon).await?
        } else {
            Vec::new()
        };
        let (changes, highest) = self.look(connection, &bells, snapshot.horizon).await?;
        let mut seen = seen(&snapshot, highest);
        seen.shown = seen.shown.max(self.index.seen().shown);
        if bells.is_empty() {
            self.index.tell(seen);
        } else {
            let index = Arc::clone(&self.index);
            off_thread(move || index.apply(changes, seen)).await;
        }
        Ok(Some(Cursor { snapshot, moved: moved(&cursor, &snapshot) }))
    }

    /// How everything is now whose bell rang, and the highest transaction above the horizon that shows in it.
    async fn look(
        &self,
        connection: &mut PgConnection,
        bells: &[Doorbell],
        horizon: u64,
    ) -> Result<(Changes, Option<u64>), StoreError> {
        let mut agents: Vec<AgentId> = Vec::new();
        let mut stacks: Vec<StackId> = Vec::new();
        let mut changes = Changes::default();
        for bell in bells {
            match bell {
                Doorbell::Agent(agent) => agents.push(*agent),
                Doorbell::Stack(stack) => stacks.push(*stack),
                Doorbell::Grant(_) => changes.grants = Some(Vec::new()),
            }
        }
        if let Some(grants) = &mut changes.grants {
            *grants = facts_of_all_grants_on_conn(connection).await?;
        }
        if !agents.is_empty() {
            changes.agents = facts_of_agents_on_conn(connection, &agents).await?;
            stacks.extend(self.index.picture().unknown_holds(&changes.agents));
        }
        if !stacks.is_empty() {
            changes.stacks = facts_of_stacks_on_conn(connection, &stacks).await?;
        }
        if bells.is_empty() {
            return Ok((changes, None));
        }
        let keys: Vec<Uuid> =
            agents.iter().map(|agent| agent.0).chain(stacks.iter().map(|stack| stack.0)).collect();
        let highest =
            outbox_highest_on_conn(connection, horizon, Some(&keys), changes.grants.is_some()).await?;
        Ok((changes, highest))
    }
}

/// Whether the second snapshot can be read on from the first: same history, not too far apart.
fn continues(before: &Snapshot, now: &Snapshot) -> bool {
    before.epoch == now.epoch
        && before.horizon <= now.horizon
        && now.now.duration_since(before.now) < OLDEST_CURSOR
}

/// Notes when the horizon moved, and tells when it has stood still behind others for long.
fn moved(cursor: &Cursor, snapshot: &Snapshot) -> Timestamp {
    if snapshot.horizon > cursor.snapshot.horizon || snapshot.horizon == snapshot.ceiling {
        return snapshot.now;
    }
    let stood = snapshot.now.duration_since(cursor.moved);
    if stood < STALLED {
        return cursor.moved;
    }
    let seconds = stood.as_secs();
    tracing::warn!(horizon = snapshot.horizon, seconds, "an open transaction holds the outbox back");
    snapshot.now
}

/// How far a picture of this snapshot has seen, if `highest` is the last above the horizon that shows in it.
fn seen(snapshot: &Snapshot, highest: Option<u64>) -> Seen {
    let position = Position { epoch: snapshot.epoch, horizon: snapshot.horizon };
    let shown = highest.map_or(snapshot.horizon, |xid| snapshot.horizon.max(xid + 1));
    Seen { position, shown, ceiling: snapshot.ceiling, at: Instant::now() }
}

/// What a task came to; its panic is ours.
fn finished<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => unreachable!("nobody aborts it"),
    }
}

/// A change may concern every agent: computing their answers must not hold up a thread that serves.
async fn off_thread(work: impl FnOnce() + Send + 'static) {
    finished(tokio::task::spawn_blocking(work).await);
}

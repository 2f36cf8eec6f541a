//! Applies changes to the index.
//!
//! Waits for: a timer (200 ms), or a commit of this replica. After a commit it reads every 10 ms until the
//! horizon has passed the committed transaction, but for a second at most; then the timer continues. A
//! notification only says *what* changed; the current state is read in the same snapshot, so repeated
//! notifications do no harm.

mod history;
mod load;
mod verify;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::{AgentId, HistoryMark, Position, StackId};
use jiff::{SignedDuration, Timestamp};
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::finished;
use crate::domain::grants::Rules;
use crate::index::{Changes, Freshness, Index};
use crate::state::history::{History, RecentMarks};
use crate::state::restore::RestoreState;
use crate::state::tail_notifier::TailNotifier;
use crate::store::facts::{facts_of_agents_on_conn, facts_of_stacks_on_conn};
use crate::store::grants::facts_of_rules_on_conn;
use crate::store::outbox::{
    OutboxNotification, OutboxSnapshot, READ_ONLY_SNAPSHOT, outbox_highest_on_conn, outbox_read_on_conn,
    outbox_snapshot_on_conn, outbox_terminate_abandoned,
};
use crate::store::{Doing as _, StoreError};
use verify::Rounds;

const TICK: Duration = Duration::from_millis(200);
const FAST_TICK: Duration = Duration::from_millis(10);
const FAST_TICKS_FOR: Duration = Duration::from_secs(1);
/// The server ends a statement after 30 s. One that takes longer than this has lost its server.
const READ_TIMEOUT: Duration = Duration::from_secs(40);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Outbox rows are kept for an hour. If the cursor is nearly that old, everything is reloaded.
const OLDEST_CURSOR: SignedDuration = SignedDuration::from_mins(50);
/// A horizon that does not move for this long is logged.
const STALLED: SignedDuration = SignedDuration::from_secs(30);

/// A session that waits this long for the rest of a message has lost its client.
const ABANDONED_AFTER: Duration = Duration::from_secs(15);

/// Up to where the outbox has been applied.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    snapshot: OutboxSnapshot,
    /// When the horizon last moved, by the database's clock.
    moved: Timestamp,
    /// Whether a mark covers everything that was applied.
    is_marked: bool,
}

/// What a step has read.
#[derive(Debug)]
struct Reading {
    /// The latest marks before the snapshot was taken.
    recent: RecentMarks,
    snapshot: OutboxSnapshot,
    marks: Vec<HistoryMark>,
    /// None if nothing was notified.
    changes: Option<Changes>,
    /// The highest transaction above the horizon of which changes may be included.
    highest: Option<u64>,
}

#[derive(Debug)]
pub struct OutboxTail {
    pool: PgPool,
    index: Arc<Index>,
    notifier: TailNotifier,
    history: History,
    restore: RestoreState,
}

impl OutboxTail {
    #[must_use]
    pub fn new(
        pool: PgPool,
        index: Arc<Index>,
        notifier: TailNotifier,
        history: History,
        restore: RestoreState,
    ) -> Self {
        Self { pool, index, notifier, history, restore }
    }

    /// Applies changes until stopped.
    pub async fn run(self, mut cursor: Cursor, stop: CancellationToken) {
        let mut failing = false;
        let mut rounds = Rounds::new(Instant::now());
        loop {
            self.notifier.beat();
            let slices = rounds.due(Instant::now(), self.index.snapshot().agents());
            let result = match slices {
                Some(slices) => self.check(cursor, slices).await,
                None => self.step(cursor).await,
            };
            let pause = match result {
                Ok(next) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("reading the outbox works again");
                    }
                    cursor = next;
                    TICK
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::error!(
                            error,
                            "failed to read the outbox; until this works, polls are answered with the state \
                             that was read last; retrying"
                        );
                    }
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.notifier.notified() => cursor = self.follow_commit(cursor).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads often until the horizon has passed the last local commit.
    async fn follow_commit(&self, mut cursor: Cursor) -> Cursor {
        let until = Instant::now() + FAST_TICKS_FOR;
        while cursor.snapshot.horizon <= self.notifier.highest() && Instant::now() < until {
            match self.step(cursor).await {
                Ok(next) => cursor = next,
                // The outer loop logs it.
                Err(_) => return cursor,
            }
            if cursor.snapshot.horizon <= self.notifier.highest() {
                tokio::time::sleep(FAST_TICK).await;
            }
        }
        cursor
    }

    /// Applies the changes between the cursor and the horizon, and returns the new cursor.
    pub async fn step(&self, cursor: Cursor) -> Result<Cursor, StoreError> {
        let stepping = async {
            let mut conn = self.pool.acquire().await.doing("begin to read the outbox")?;
            let mut transaction =
                conn.begin_with(READ_ONLY_SNAPSHOT).await.doing("begin to read the outbox")?;
            let reading = self.read_changes_on_conn(&mut transaction, cursor).await?;
            transaction.commit().await.doing("end reading the outbox")?;
            match reading {
                Some(reading) => self.show(&mut conn, cursor, reading).await.map(Some),
                None => Ok(None),
            }
        };
        let next = tokio::time::timeout(READ_TIMEOUT, stepping).await.unwrap_or_else(|_| {
            Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())).doing("read the outbox in time")
        })?;
        let Some(next) = next else { return self.load().await };
        let unmoved = next.snapshot.horizon == cursor.snapshot.horizon;
        if unmoved && next.snapshot.horizon < next.snapshot.ceiling && next.moved != cursor.moved {
            self.terminate_abandoned().await;
        }
        Ok(next)
    }

    /// Ends sessions that lost their client in the middle of a message: they hold back the horizon and no timeout of
    /// the server ends them.
    async fn terminate_abandoned(&self) {
        match outbox_terminate_abandoned(&self.pool, ABANDONED_AFTER).await {
            Ok(0) => {}
            Ok(sessions) => tracing::warn!(sessions, "terminated database sessions that lost their client"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "failed to terminate database sessions that lost their client; will retry"
                );
            }
        }
    }

    /// Reads what changed since the cursor, in this read-only transaction; returns none if the outbox does not continue
    /// from the cursor.
    async fn read_changes_on_conn(
        &self,
        connection: &mut PgConnection,
        cursor: Cursor,
    ) -> Result<Option<Reading>, StoreError> {
        let recent = self.history.recent();
        let (snapshot, marks) = outbox_snapshot_on_conn(connection, &recent.marks).await?;
        if !continues(&cursor.snapshot, &snapshot) {
            tracing::warn!(
                epoch = snapshot.epoch,
                horizon = snapshot.horizon,
                "new epoch, other history of the database, or outbox not read for too long; reloading the index"
            );
            return Ok(None);
        }
        let notifications = if snapshot.horizon > cursor.snapshot.horizon {
            outbox_read_on_conn(connection, cursor.snapshot.horizon, snapshot.horizon).await?
        } else {
            Vec::new()
        };
        let (changes, highest) = self.read(connection, &notifications, snapshot.horizon).await?;
        let changes = (!notifications.is_empty()).then_some(changes);
        Ok(Some(Reading { recent, snapshot, marks, changes, highest }))
    }

    /// Marks the history on the same connection, then shows what was read, and returns the new cursor.
    async fn show(
        &self,
        conn: &mut PgConnection,
        cursor: Cursor,
        reading: Reading,
    ) -> Result<Cursor, StoreError> {
        let Reading { recent, snapshot, mut marks, changes, highest } = reading;
        let is_mark_due = changes.is_some() || self.is_mark_due(&cursor, &snapshot);
        let mark = if is_mark_due { self.mark(conn).await? } else { None };
        marks.extend(mark);
        if !self.record_marks(conn, recent, &marks).await? {
            return Ok(cursor);
        }
        let before = self.index.freshness();
        let mut freshness = freshness(&snapshot, highest, mark.unwrap_or(before.mark));
        freshness.shown = freshness.shown.max(before.shown);
        match changes {
            None => self.index.set_freshness(freshness),
            Some(changes) => {
                let index = Arc::clone(&self.index);
                off_thread(move || index.apply(changes, freshness)).await;
            }
        }
        let is_marked = !is_mark_due || mark.is_some();
        Ok(Cursor { snapshot, moved: moved(&cursor, &snapshot), is_marked })
    }

    /// Reads the current state of everything that changed, and the highest transaction above the horizon
    /// whose changes this state may contain.
    async fn read(
        &self,
        connection: &mut PgConnection,
        notifications: &[OutboxNotification],
        horizon: u64,
    ) -> Result<(Changes, Option<u64>), StoreError> {
        let mut agents: Vec<AgentId> = Vec::new();
        let mut stacks: Vec<StackId> = Vec::new();
        let mut changes = Changes::default();
        for notification in notifications {
            match notification {
                OutboxNotification::Agent(agent) => agents.push(*agent),
                OutboxNotification::Stack(stack) => stacks.push(*stack),
                OutboxNotification::Grant(_)
                | OutboxNotification::Window(_)
                | OutboxNotification::HealthRules
                | OutboxNotification::AgentUpgrades => {
                    changes.rules = Some(Rules::default());
                }
            }
        }
        if let Some(rules) = &mut changes.rules {
            *rules = facts_of_rules_on_conn(connection).await?;
        }
        if !agents.is_empty() {
            changes.agents = facts_of_agents_on_conn(connection, &agents).await?;
            let exist: HashSet<AgentId> = changes.agents.iter().map(|agent| agent.id).collect();
            changes.deleted_agents = agents.iter().copied().filter(|agent| !exist.contains(agent)).collect();
            stacks.extend(self.index.snapshot().unknown_holds(&changes.agents));
        }
        if !stacks.is_empty() {
            changes.stacks = facts_of_stacks_on_conn(connection, &stacks).await?;
        }
        if notifications.is_empty() {
            return Ok((changes, None));
        }
        let keys: Vec<Uuid> =
            agents.iter().map(|agent| agent.0).chain(stacks.iter().map(|stack| stack.0)).collect();
        let highest =
            outbox_highest_on_conn(connection, horizon, Some(&keys), changes.rules.is_some()).await?;
        Ok((changes, highest))
    }
}

/// Returns whether the second snapshot continues the first: same history, not too far apart.
fn continues(before: &OutboxSnapshot, now: &OutboxSnapshot) -> bool {
    now.has_marks
        && before.epoch == now.epoch
        && before.horizon <= now.horizon
        && now.now.duration_since(before.now) < OLDEST_CURSOR
}

/// Returns when the horizon last moved; logs if an open transaction holds it back for long.
fn moved(cursor: &Cursor, snapshot: &OutboxSnapshot) -> Timestamp {
    if snapshot.horizon > cursor.snapshot.horizon || snapshot.horizon == snapshot.ceiling {
        return snapshot.now;
    }
    let stalled = snapshot.now.duration_since(cursor.moved);
    if stalled < STALLED {
        return cursor.moved;
    }
    let seconds = stalled.as_secs();
    tracing::warn!(horizon = snapshot.horizon, seconds, "an open transaction delays the outbox");
    snapshot.now
}

/// Returns the freshness of an index with this snapshot; `highest` is the last transaction above the horizon
/// that it contains.
fn freshness(snapshot: &OutboxSnapshot, highest: Option<u64>, mark: HistoryMark) -> Freshness {
    let position = Position { epoch: snapshot.epoch, horizon: snapshot.horizon };
    let shown = highest.map_or(snapshot.horizon, |xid| snapshot.horizon.max(xid + 1));
    Freshness { position, shown, ceiling: snapshot.ceiling, mark, at: Instant::now() }
}

/// Runs the work on a blocking thread: a change may affect every agent, and must not delay requests.
async fn off_thread(work: impl FnOnce() + Send + 'static) {
    finished(tokio::task::spawn_blocking(work).await);
}

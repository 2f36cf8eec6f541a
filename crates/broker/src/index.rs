//! The in-memory index that answers polls: updated by the outbox tail, read by handlers, no SQL.
//!
//! | module           | contents                                                               |
//! |------------------|------------------------------------------------------------------------|
//! | `snapshot`       | agents, stacks and grants, with the inverted indexes for lookups       |
//! | `labels`         | label → agents as bitmaps, selector → stacks                           |
//! | `envelope_cache` | computed envelopes, kept until a change affects their agent            |
//! | `waiters`        | the agents that wait in a long poll                                    |
//! | `outcomes`       | what each agent has last reported about each stack                     |
//! | `fleet`          | views of a fleet, from the snapshot and the outcomes                   |
//!
//! Locks are taken in the order snapshot, envelopes, waiters, outcomes, and never across an await.
//!
//! # Position
//!
//! Notifications are read up to the horizon (the lowest transaction that is still open), but the current
//! state of what changed is read from the whole transaction snapshot. So the index may contain some, but not
//! all, of the changes that committed above the horizon. Two numbers keep agents from going back in time when
//! they switch replicas:
//!
//! - responses are stamped with `shown`: the snapshot contains nothing from this transaction on;
//! - a replica guarantees only its `horizon`: everything below it is in the snapshot. It sends an agent
//!   something new only once its horizon has reached the position that the agent sent.
//!
//! Two replicas with the same `shown` may still contain different changes above the horizon.

mod envelope_cache;
mod fleet;
mod labels;
mod outcomes;
#[cfg(test)]
mod properties;
mod snapshot;
mod waiters;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use brokkr_api::{AgentId, HistoryMark, InstallationId, Position, StackId};
use roaring::RoaringBitmap;
use tokio::sync::{Notify, watch};

pub use fleet::{FleetCounts, MatrixRequest, WholeStack};
pub use outcomes::{Outcomes, Reread};
pub use snapshot::{AgentCursor, Changes, LabelFilter, Losses, Retargeting, Snapshot};
pub use waiters::Waiting;

use crate::domain::envelope::{EncodedEnvelope, encode, envelope};
use crate::domain::facts::StackFacts;
use crate::domain::upgrades::UpgradeFacts;
use envelope_cache::EnvelopeCache;
use labels::Slot;
use waiters::Waiters;

/// How much of the history the index contains.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// Everything below it is in the snapshot.
    pub position: Position,
    /// Nothing from this transaction on is in the snapshot. Never below the horizon.
    pub shown: u64,
    /// No transaction with this id or a higher one had begun when the database was last read.
    pub ceiling: u64,
    /// Where this mark is, everything in the snapshot is.
    pub mark: HistoryMark,
    pub at: Instant,
}

impl Freshness {
    /// Returns the freshness of an index before anything was read.
    #[must_use]
    pub fn unread() -> Self {
        Self {
            position: Position::default(),
            shown: 0,
            ceiling: 0,
            mark: HistoryMark::default(),
            at: Instant::now(),
        }
    }

    /// Returns the position of an envelope: a replica that has reached it contains all that the envelope shows. Also
    /// returns the mark that proves it.
    #[must_use]
    pub fn stamp(&self) -> (Position, HistoryMark) {
        (Position { epoch: self.position.epoch, horizon: self.shown }, self.mark)
    }
}

#[derive(Debug)]
pub struct Index {
    installation: InstallationId,
    snapshot: RwLock<Snapshot>,
    envelopes: Mutex<EnvelopeCache>,
    waiters: Mutex<Waiters>,
    outcomes: RwLock<Outcomes>,
    freshness: watch::Sender<Freshness>,
    woken: AtomicU64,
    mismatches: AtomicU64,
    /// When the index was last reloaded because of a mismatch.
    reloaded: Mutex<Option<Instant>>,
    /// Notified when a rollout of a stack or of agents begins or takes a step.
    rollouts: Notify,
}

/// The agents that a change affects, in the snapshot after it.
#[derive(Debug)]
pub struct Affected<'a> {
    snapshot: &'a Snapshot,
    slots: RoaringBitmap,
}

impl Affected<'_> {
    fn len(&self) -> usize {
        usize::try_from(self.slots.len()).unwrap_or(usize::MAX)
    }

    fn iter(&self) -> impl Iterator<Item = AgentId> {
        self.slots.iter().map(|slot| self.snapshot.at(slot).id)
    }

    fn contains(&self, agent: AgentId) -> bool {
        self.snapshot.slot(agent).is_some_and(|slot| self.slots.contains(slot))
    }
}

impl Index {
    #[must_use]
    pub fn new(installation: InstallationId) -> Self {
        Self {
            installation,
            snapshot: RwLock::default(),
            envelopes: Mutex::default(),
            waiters: Mutex::default(),
            outcomes: RwLock::default(),
            freshness: watch::Sender::new(Freshness::unread()),
            woken: AtomicU64::new(0),
            mismatches: AtomicU64::new(0),
            reloaded: Mutex::default(),
            rollouts: Notify::new(),
        }
    }

    /// Returns a read lock of the snapshot. Do not hold it for long.
    pub fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the target state of an agent, its position and its mark. It is computed at most once after each change
    /// that affects the agent.
    pub fn envelope(&self, agent: AgentId) -> Option<(Arc<EncodedEnvelope>, (Position, HistoryMark))> {
        // Held to the end: no change can come between computing and storing the envelope.
        let snapshot = self.snapshot();
        let stamp = self.freshness().stamp();
        if let Some(known) = self.envelopes().get(agent) {
            return Some((known, stamp));
        }
        let facts = snapshot.agent(agent)?;
        let (stacks, rules) = (snapshot.candidates(facts), snapshot.health_rules());
        let computed = Arc::new(encode(&envelope(self.installation, facts, stacks, rules)));
        self.envelopes().put(agent, Arc::clone(&computed));
        Some((computed, stamp))
    }

    /// Applies changes, and wakes the agents whose envelope changed, or whose permission to poll, and those that are asked to fetch an
    /// upgrade.
    pub fn apply(&self, changes: Changes, freshness: Freshness) {
        let deleted = changes.deleted_agents.clone();
        let upgrades = changes.rules.iter().flat_map(|rules| &rules.upgrades);
        let rolls = changes.stacks.iter().any(StackFacts::has_rollout)
            || upgrades.into_iter().any(UpgradeFacts::is_rolling);
        let changed_stacks: Vec<StackId> = changes.stacks.iter().map(|stack| stack.id).collect();
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let is_shown = snapshot.changes_views(&changes);
        let doubtful = snapshot.without_reports(&changes.agents);
        let freed: Vec<Slot> = deleted.iter().filter_map(|agent| snapshot.slot(*agent)).collect();
        let mut new_stacks: BTreeSet<StackId> =
            changed_stacks.into_iter().filter(|stack| snapshot.stack(*stack).is_none()).collect();
        let slots = snapshot.apply(changes);
        // A deleted stack that nobody holds is dropped at once.
        new_stacks.retain(|stack| snapshot.stack(*stack).is_some());
        let reread = Reread { agents: doubtful, stacks: new_stacks };
        self.outcomes_mut().follow(&snapshot, &freed, reread, is_shown);
        let affected = Affected { snapshot: &snapshot, slots };
        self.envelopes().forget(&affected);
        self.envelopes().forget_deleted(&deleted);
        self.set_freshness(freshness);
        let slots = affected.slots;
        // Woken polls read the snapshot at once, while others are still being woken.
        let snapshot = RwLockWriteGuard::downgrade(snapshot);
        let waiters = self.waiters();
        let woken = waiters.wake(&Affected { snapshot: &snapshot, slots }) + waiters.wake_deleted(&deleted);
        self.woken.fetch_add(woken, Ordering::Relaxed);
        if rolls {
            self.rollouts.notify_one();
        }
    }

    /// Waits until a rollout begins, or takes a step, here or at another replica.
    pub async fn rollout_changed(&self) {
        self.rollouts.notified().await;
    }

    /// Replaces everything: at the start, and whenever the tail reloads.
    pub fn replace(&self, snapshot: Snapshot, freshness: Freshness) {
        let before = {
            let mut here = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
            self.envelopes().clear();
            self.set_freshness(freshness);
            // Agents have other slots from now on.
            let outcomes = self.outcomes_mut().renumber();
            (std::mem::replace(&mut *here, snapshot), outcomes)
        };
        let woken = self.waiters().wake_all();
        self.woken.fetch_add(woken, Ordering::Relaxed);
        // Dropping a large snapshot takes a while: not under the lock.
        drop(before);
    }

    /// Records how much of the history the snapshot contains.
    pub fn set_freshness(&self, freshness: Freshness) {
        self.freshness.send_replace(freshness);
    }

    pub fn freshness(&self) -> Freshness {
        *self.freshness.borrow()
    }

    pub fn position(&self) -> Position {
        self.freshness().position
    }

    /// Waits until everything below the position has been applied; returns false if that took too long.
    pub async fn reached(&self, position: Position, at_most: Duration) -> bool {
        let mut freshness = self.freshness.subscribe();
        let reached = freshness.wait_for(|freshness| freshness.position >= position);
        matches!(tokio::time::timeout(at_most, reached).await, Ok(Ok(_)))
    }

    /// Registers a long poll. Read the envelope again afterwards: it may have changed just before.
    pub fn wait(self: &Arc<Self>, agent: AgentId) -> Waiting {
        let notify = self.waiters().register(agent);
        Waiting::new(Arc::clone(self), agent, notify)
    }

    /// Returns how many long polls were woken since the start.
    pub fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Returns how many agents wait in long polls at this replica.
    pub fn waiting(&self) -> usize {
        self.waiters().len()
    }

    /// Returns how often the index was found to differ from the database.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }

    /// Counts a mismatch; returns whether to reload now, which is the case at most once per `at_most_every`.
    pub fn record_mismatch(&self, at_most_every: Duration) -> bool {
        self.mismatches.fetch_add(1, Ordering::Relaxed);
        let mut reloaded = self.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
        let due = reloaded.is_none_or(|at| at.elapsed() >= at_most_every);
        if due {
            *reloaded = Some(Instant::now());
        }
        due
    }

    fn envelopes(&self) -> MutexGuard<'_, EnvelopeCache> {
        self.envelopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

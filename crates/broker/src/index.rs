//! The in-memory picture that answers polls: fed by the outbox tail, asked by handlers, no SQL.
//!
//! | module      | what lives there                                                            |
//! |-------------|-----------------------------------------------------------------------------|
//! | `picture`   | agents, stacks and grants, with what makes a poll a lookup                  |
//! | `labels`    | label → agents as bitmaps, selector → stacks                                |
//! | `answers`   | envelopes that were computed, kept until something concerns their agent     |
//! | `waiters`   | who waits in a long poll                                                    |
//!
//! Locks are taken in the order picture, answers, waiters, and never across an await.
//!
//! # Position
//!
//! What changed is read up to the horizon, how it is now from the whole snapshot: so the picture may show
//! some, not all, of what committed above the horizon. Two figures keep agents from going back in time when
//! they change replicas:
//!
//! - answers are stamped with `shown`: nothing in the picture is from this transaction on;
//! - a replica vouches only for its `horizon`: everything below it is in the picture. It tells something new
//!   to an agent only once its horizon has reached what the agent brings.
//!
//! `shown` of one replica says nothing to another, as each may show other parts of what is above the horizon.

mod answers;
mod labels;
mod picture;
#[cfg(test)]
mod properties;
mod waiters;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use brokkr_api::{AgentId, InstallationId, Position};
use roaring::RoaringBitmap;
use tokio::sync::watch;

pub use picture::{Changes, Losses, Picture, Place, Retargeting};
pub use waiters::Waiting;

use crate::domain::envelope::{Answer, answer, envelope};
use answers::Answers;
use waiters::Waiters;

/// How far the index has seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Everything below it is in the picture.
    pub position: Position,
    /// Nothing from this transaction on is in the picture. Never below the horizon.
    pub shown: u64,
    /// No transaction from this one on had begun when the database was last looked at.
    pub ceiling: u64,
    pub at: Instant,
}

impl Seen {
    /// What an answer is stamped with: whoever has reached it has all that the answer shows.
    #[must_use]
    pub fn stamp(&self) -> Position {
        Position { epoch: self.position.epoch, horizon: self.shown }
    }
}

#[derive(Debug)]
pub struct Index {
    installation: InstallationId,
    picture: RwLock<Picture>,
    answers: Mutex<Answers>,
    waiters: Mutex<Waiters>,
    seen: watch::Sender<Seen>,
    woken: AtomicU64,
    disagreements: AtomicU64,
    /// When everything was last loaded anew because of one.
    healed: Mutex<Option<Instant>>,
}

/// Whom a change concerns, in the picture after it.
#[derive(Debug)]
pub struct Concerned<'a> {
    picture: &'a Picture,
    slots: RoaringBitmap,
}

impl Concerned<'_> {
    fn len(&self) -> usize {
        usize::try_from(self.slots.len()).unwrap_or(usize::MAX)
    }

    fn iter(&self) -> impl Iterator<Item = AgentId> {
        self.slots.iter().map(|slot| self.picture.at(slot).id)
    }

    fn contains(&self, agent: AgentId) -> bool {
        self.picture.slot(agent).is_some_and(|slot| self.slots.contains(slot))
    }
}

impl Index {
    #[must_use]
    pub fn new(installation: InstallationId) -> Self {
        let seen = Seen { position: Position::default(), shown: 0, ceiling: 0, at: Instant::now() };
        Self {
            installation,
            picture: RwLock::default(),
            answers: Mutex::default(),
            waiters: Mutex::default(),
            seen: watch::Sender::new(seen),
            woken: AtomicU64::new(0),
            disagreements: AtomicU64::new(0),
            healed: Mutex::default(),
        }
    }

    /// For questions that need more than one look. Do not keep it.
    pub fn picture(&self) -> RwLockReadGuard<'_, Picture> {
        self.picture.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target state of an agent, computed at most once for each change that concerns it, with its stamp.
    pub fn answer(&self, agent: AgentId) -> Option<(Arc<Answer>, Position)> {
        // Held to the end: what is shown changes only together with the picture, and an invalidation cannot
        // come between computing and storing, and be lost.
        let picture = self.picture();
        let stamp = self.seen().stamp();
        if let Some(known) = self.answers().get(agent) {
            return Some((known, stamp));
        }
        let facts = picture.agent(agent)?;
        let computed = Arc::new(answer(&envelope(self.installation, facts, picture.candidates(facts))));
        self.answers().put(agent, Arc::clone(&computed));
        Some((computed, stamp))
    }

    /// Takes in changes and wakes those whose answer they change, or whose right to ask.
    pub fn apply(&self, changes: Changes, seen: Seen) {
        let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
        let slots = picture.apply(changes);
        let concerned = Concerned { picture: &picture, slots };
        self.answers().forget(&concerned);
        self.tell(seen);
        let slots = concerned.slots;
        // Who is woken looks at the picture at once: others may read it while the rest is still being woken.
        let picture = RwLockWriteGuard::downgrade(picture);
        let woken = self.waiters().wake(&Concerned { picture: &picture, slots });
        self.woken.fetch_add(woken, Ordering::Relaxed);
    }

    /// Replaces everything: at start, and after a cursor grew too old.
    pub fn replace(&self, picture: Picture, seen: Seen) {
        let before = {
            let mut here = self.picture.write().unwrap_or_else(PoisonError::into_inner);
            self.answers().clear();
            self.tell(seen);
            std::mem::replace(&mut *here, picture)
        };
        let woken = self.waiters().wake_all();
        self.woken.fetch_add(woken, Ordering::Relaxed);
        // Taking a large one apart takes a while: not under the lock.
        drop(before);
    }

    /// How far the picture, as it is, has seen.
    pub fn tell(&self, seen: Seen) {
        self.seen.send_replace(seen);
    }

    pub fn seen(&self) -> Seen {
        *self.seen.borrow()
    }

    pub fn position(&self) -> Position {
        self.seen().position
    }

    /// Waits until everything below the position has been taken in; false if that took too long.
    pub async fn reached(&self, position: Position, at_most: Duration) -> bool {
        let mut seen = self.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.position >= position);
        matches!(tokio::time::timeout(at_most, reached).await, Ok(Ok(_)))
    }

    /// Waits until the database was looked at after this call; false if that took too long.
    pub async fn looked_again(&self, at_most: Duration) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.subscribe();
        let looked = seen.wait_for(|seen| seen.at > now);
        matches!(tokio::time::timeout(at_most, looked).await, Ok(Ok(_)))
    }

    /// Registers a long poll. Look at the answer again afterwards: it may have changed just before.
    pub fn wait(self: &Arc<Self>, agent: AgentId) -> Waiting {
        let bell = self.waiters().register(agent);
        Waiting::new(Arc::clone(self), agent, bell)
    }

    /// How many long polls were woken since the start.
    pub fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// How many long polls wait here.
    pub fn waiting(&self) -> usize {
        self.waiters().len()
    }

    /// How often the picture was found to be something else than what the database holds.
    pub fn disagreements(&self) -> u64 {
        self.disagreements.load(Ordering::Relaxed)
    }

    /// Counts one, and tells whether to load anew: not if that was tried a short while ago.
    pub fn disagreed(&self, at_most_every: Duration) -> bool {
        self.disagreements.fetch_add(1, Ordering::Relaxed);
        let mut healed = self.healed.lock().unwrap_or_else(PoisonError::into_inner);
        let again = healed.is_none_or(|at| at.elapsed() >= at_most_every);
        if again {
            *healed = Some(Instant::now());
        }
        again
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

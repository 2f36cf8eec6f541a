//! The in-memory picture that answers polls: fed by the outbox tail, asked by handlers, no SQL.
//!
//! | module      | what lives there                                                            |
//! |-------------|-----------------------------------------------------------------------------|
//! | `picture`   | agents and stacks, with the inverted indexes that make a poll a lookup      |
//! | `labels`    | label → agents, selector → stacks                                           |
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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use brokkr_api::{AgentId, InstallationId, Position};
use tokio::sync::watch;

pub use picture::{Changes, Picture};
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

    /// Takes in changes and wakes those whom they concern. Whether their answer really became another, each
    /// looks at for itself: a change may concern every agent, and the tail has to go on.
    pub fn apply(&self, changes: Changes, seen: Seen) {
        let concerned = {
            let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
            let concerned = picture.apply(changes);
            self.answers().forget(&concerned);
            self.tell(seen);
            concerned
        };
        self.waiters().wake(&concerned);
    }

    /// Replaces everything: at start, and after a cursor grew too old.
    pub fn replace(&self, picture: Picture, seen: Seen) {
        let before = {
            let mut here = self.picture.write().unwrap_or_else(PoisonError::into_inner);
            self.answers().clear();
            self.tell(seen);
            std::mem::replace(&mut *here, picture)
        };
        self.waiters().wake_all();
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
        let (ticket, bell) = self.waiters().register(agent);
        Waiting::new(Arc::clone(self), agent, ticket, bell)
    }

    /// How many long polls wait here.
    pub fn waiting(&self) -> usize {
        self.waiters().len()
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The in-memory picture that answers polls: fed by the outbox tail, asked by handlers, no SQL.
//!
//! | module      | what lives there                                                            |
//! |-------------|-----------------------------------------------------------------------------|
//! | `picture`   | agents and stacks, with the inverted indexes that make a poll a lookup      |
//! | `labels`    | label → agents, selector → stacks                                           |
//! | `answers`   | envelopes that were computed, kept until something concerns their agent     |
//! | `waiters`   | who waits in a long poll, and for a change of what                          |
//!
//! Locks are taken in the order picture, answers, waiters, and never across an await.

mod answers;
mod labels;
mod picture;
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
    pub position: Position,
    /// No transaction from this one on had begun when the database was last looked at.
    pub ceiling: u64,
    pub at: Instant,
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
        let seen = Seen { position: Position::default(), ceiling: 0, at: Instant::now() };
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

    /// The target state of an agent, computed at most once for each change that concerns it.
    pub fn answer(&self, agent: AgentId) -> Option<Arc<Answer>> {
        let picture = self.picture();
        self.answer_from(&picture, agent)
    }

    /// Stores while the picture is still locked: an invalidation cannot come in between and be lost.
    fn answer_from(&self, picture: &Picture, agent: AgentId) -> Option<Arc<Answer>> {
        if let Some(known) = self.answers().get(agent) {
            return Some(known);
        }
        let facts = picture.agent(agent)?;
        let computed = Arc::new(answer(&envelope(self.installation, facts, picture.candidates(facts))));
        self.answers().put(agent, Arc::clone(&computed));
        Some(computed)
    }

    /// Takes in changes and wakes exactly those whose answer became another, or whose right to ask changed.
    pub fn apply(&self, changes: Changes, seen: Seen) {
        let concerned = {
            let mut picture = self.picture.write().unwrap_or_else(PoisonError::into_inner);
            let concerned = picture.apply(changes);
            self.answers().forget(&concerned.agents);
            concerned
        };
        self.tell(seen);
        let waiting = self.waiters().among(&concerned.agents);
        let picture = self.picture();
        for agent in waiting {
            let now = self.answer_from(&picture, agent);
            let etag = now.as_ref().map(|answer| answer.etag.as_str());
            self.waiters().wake(agent, etag, concerned.rights.contains(&agent));
        }
    }

    /// Replaces everything: at start, and after a cursor grew too old.
    pub fn replace(&self, picture: Picture, seen: Seen) {
        *self.picture.write().unwrap_or_else(PoisonError::into_inner) = picture;
        self.answers().clear();
        self.tell(seen);
        self.waiters().wake_all();
    }

    /// Nothing changed, but the horizon moved.
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
    pub fn wait(self: &Arc<Self>, agent: AgentId, etag: &str) -> Waiting {
        let (ticket, bell) = self.waiters().register(agent, etag);
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

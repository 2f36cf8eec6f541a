//! One tail of the events for everybody who watches: however many streams are open here, the database is read once.
//!
//! Waits for: a timer (250 ms). What it reads ends at the horizon that the index has reached: every transaction below it
//! has ended, so nothing that commits late is passed over. Whoever reads too slowly loses their place in the buffer,
//! is cut off, and comes back with the id of the last event that they got.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brokkr_api::Position;
use brokkr_api::events::Event;
use sqlx::PgPool;
use tokio::sync::{OnceCell, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::domain::status::LastReport;
use crate::index::Index;
use crate::store::StoreError;
use crate::store::events::{EventPlace, RecordedEvent, event_follow};

const TICK: Duration = Duration::from_millis(250);
/// Events of one statement.
const BATCH: usize = 1000;
/// Events that a slow reader may be behind.
const BUFFER: usize = 4096;
/// Streams of this replica, and of one caller.
const MOST: usize = 500;
const MOST_EACH: usize = 50;

/// An event with where it is.
#[derive(Debug)]
pub struct Told {
    pub place: EventPlace,
    pub event: Event,
    /// The agent's last word as of then: read once, by the first stream that wants it, for all of them.
    pub report: OnceCell<Option<LastReport>>,
}

impl Told {
    #[must_use]
    pub fn new(recorded: RecordedEvent) -> Self {
        Self { place: recorded.place, event: recorded.event, report: OnceCell::new() }
    }
}

/// Where streams get their events from.
#[derive(Clone, Debug)]
pub struct Streams {
    told: broadcast::Sender<Arc<Told>>,
    /// Everything below has been told.
    tailed: watch::Sender<Position>,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl Default for Streams {
    fn default() -> Self {
        let told = broadcast::Sender::new(BUFFER);
        Self { told, tailed: watch::Sender::new(Position::default()), open: Arc::default() }
    }
}

/// A stream that is open; makes room when dropped.
#[derive(Debug)]
pub struct Ticket {
    open: Arc<Mutex<HashMap<String, usize>>>,
    principal: String,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.principal);
            }
        }
    }
}

fn lock(open: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// Room for one more stream of this caller; none if there is none.
    pub fn ticket(&self, principal: String) -> Option<Ticket> {
        let mut open = lock(&self.open);
        let all: usize = open.values().sum();
        let own = open.entry(principal.clone()).or_default();
        if all >= MOST || *own >= MOST_EACH {
            return None;
        }
        *own += 1;
        Some(Ticket { open: Arc::clone(&self.open), principal })
    }

    /// What is told from now on, and up to where everything was told before: the rest is for the caller to read.
    pub fn subscribe(&self) -> (broadcast::Receiver<Arc<Told>>, Position) {
        // In this order: what is told between the two is both received and below the position, and is passed over.
        let receiver = self.told.subscribe();
        let position = *self.tailed.borrow();
        (receiver, position)
    }

    /// Resolves when the history that was told is no longer the database's.
    pub async fn history_changed(&self, epoch: i64) {
        let mut tailed = self.tailed.subscribe();
        // The sender lives as long as `self`.
        let _ = tailed.wait_for(|position| position.epoch != epoch).await;
    }

    /// Tails until told to stop.
    pub async fn run(self, pool: PgPool, index: Arc<Index>, stop: CancellationToken) {
        self.tailed.send_replace(index.position());
        let mut failing = false;
        loop {
            match self.step(&pool, index.position()).await {
                Ok(()) => failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "events cannot be read; streams wait");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// Tells what is between the last position and this one.
    async fn step(&self, pool: &PgPool, now: Position) -> Result<(), StoreError> {
        let before = *self.tailed.borrow();
        if before.epoch != now.epoch || now.horizon < before.horizon {
            // Restored: streams end, and those who come back are told.
            self.tailed.send_replace(now);
            return Ok(());
        }
        if now.horizon == before.horizon {
            return Ok(());
        }
        let mut after = EventPlace::before(before.horizon);
        loop {
            let batch = event_follow(pool, None, after, now.horizon, BATCH).await?;
            let more = batch.len() == BATCH;
            if let Some(last) = batch.last() {
                after = last.place;
            }
            for recorded in batch {
                // Nobody listens: that is fine.
                let _ = self.told.send(Arc::new(Told::new(recorded)));
            }
            if !more {
                break;
            }
        }
        self.tailed.send_replace(now);
        Ok(())
    }
}

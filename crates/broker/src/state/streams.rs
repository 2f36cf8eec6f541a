//! Events on their way to watch streams: however many streams are open here, the database is read once.
//!
//! A reader that is too slow loses its place in the buffer, is disconnected, and reconnects with the id of the last
//! event it received.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brokkr_api::Position;
use brokkr_api::events::Event;
use tokio::sync::{OnceCell, broadcast, watch};

use crate::domain::status::LastReport;
use crate::store::events::{EventCursor, RecordedEvent};

/// The number of events that a reader may fall behind.
const BUFFER: usize = 4096;
/// Streams of this replica, and of one caller.
const MAX_STREAMS: usize = 500;
const MAX_STREAMS_PER_CALLER: usize = 50;

/// An event and its place in the history.
#[derive(Debug)]
pub struct StreamedEvent {
    pub place: EventCursor,
    pub event: Event,
    /// The agent's last report about the stack: read once, when the first stream needs it, for all of them.
    pub report: OnceCell<Option<LastReport>>,
}

impl StreamedEvent {
    #[must_use]
    pub fn new(recorded: RecordedEvent) -> Self {
        Self { place: recorded.place, event: recorded.event, report: OnceCell::new() }
    }
}

/// Distributes events to open streams.
#[derive(Clone, Debug)]
pub struct Streams {
    events: broadcast::Sender<Arc<StreamedEvent>>,
    /// Everything below this position has been published.
    published: watch::Sender<Position>,
    /// Held while a stream subscribes, and while events are skipped.
    skipping: Arc<Mutex<()>>,
    open: Arc<Mutex<HashMap<String, usize>>>,
}

impl Default for Streams {
    fn default() -> Self {
        let events = broadcast::Sender::new(BUFFER);
        Self {
            events,
            published: watch::Sender::new(Position::default()),
            skipping: Arc::default(),
            open: Arc::default(),
        }
    }
}

/// The permit of an open stream; released when dropped.
#[derive(Debug)]
pub struct StreamPermit {
    open: Arc<Mutex<HashMap<String, usize>>>,
    principal: String,
}

impl Drop for StreamPermit {
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
    /// Returns a permit for one more stream of this caller, unless a limit is reached.
    pub fn open(&self, principal: String) -> Option<StreamPermit> {
        let mut open = lock(&self.open);
        let all: usize = open.values().sum();
        let own = open.entry(principal.clone()).or_default();
        if all >= MAX_STREAMS || *own >= MAX_STREAMS_PER_CALLER {
            return None;
        }
        *own += 1;
        Some(StreamPermit { open: Arc::clone(&self.open), principal })
    }

    /// Subscribes to future events, and returns the position below which the caller reads the database itself.
    pub fn subscribe(&self) -> (broadcast::Receiver<Arc<StreamedEvent>>, Position) {
        let _skipping = self.skipping.lock().unwrap_or_else(PoisonError::into_inner);
        // In this order, so that no event is missed. An event that is published in between is received
        // although it is below the position; the reader skips it.
        let receiver = self.events.subscribe();
        (receiver, self.position())
    }

    /// Resolves when the epoch changes: the published history is no longer that of the database.
    pub async fn history_changed(&self, epoch: i64) {
        let mut published = self.published.subscribe();
        // The sender lives as long as `self`.
        let _ = published.wait_for(|position| position.epoch != epoch).await;
    }

    /// Returns the position below which everything has been published.
    #[must_use]
    pub fn position(&self) -> Position {
        *self.published.borrow()
    }

    /// Publishes an event. It is fine if no stream is open.
    pub fn publish(&self, recorded: RecordedEvent) {
        let _ = self.events.send(Arc::new(StreamedEvent::new(recorded)));
    }

    /// Advances without reading anything if no stream is open; returns whether it did. A stream that opens later reads the
    /// database up to this position itself.
    #[must_use]
    pub fn skip_to(&self, position: Position) -> bool {
        // Otherwise a stream could open between the two steps, and miss the events in between.
        let _skipping = self.skipping.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = self.events.receiver_count() == 0;
        if unused {
            self.advance(position);
        }
        unused
    }

    /// Declares that everything below the position has been published.
    pub fn advance(&self, position: Position) {
        self.published.send_replace(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_skipped_only_while_no_stream_is_open() {
        let streams = Streams::default();
        let at = |horizon| Position { epoch: 1, horizon };
        assert!(streams.skip_to(at(5)));
        let (receiver, from) = streams.subscribe();
        assert_eq!(from, at(5), "it reads what was skipped from the database");
        assert!(!streams.skip_to(at(6)));
        assert_eq!(streams.position(), at(5), "the events up to 6 have to be published");
        drop(receiver);
        assert!(streams.skip_to(at(7)));
    }
}

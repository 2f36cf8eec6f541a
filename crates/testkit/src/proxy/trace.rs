//! What was asked, what the server answered, and what the client was told.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::asked::Asked;

/// One request and what came of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub asked: Asked,
    pub at: Timestamp,
    /// The server's status, if it was asked and answered.
    pub upstream: Option<u16>,
    /// The place among all answers of the server: the order in which requests were carried out, as far as
    /// anybody outside can tell.
    pub order: Option<u64>,
    /// When the server had answered.
    pub finished: Option<Timestamp>,
    /// The status that the client was told; none if it was cut off, or still waits.
    pub told: Option<u16>,
}

impl Exchange {
    /// Whether the server carried it out.
    pub fn succeeded(&self) -> bool {
        self.upstream.is_some_and(|status| (200..300).contains(&status))
    }
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    exchanges: Vec<Exchange>,
    answers: u64,
}

impl Trace {
    pub(super) fn begin(&self, asked: &Asked) -> usize {
        let mut log = self.lock();
        log.exchanges.push(Exchange {
            asked: asked.clone(),
            at: Timestamp::now(),
            upstream: None,
            order: None,
            finished: None,
            told: None,
        });
        log.exchanges.len() - 1
    }

    pub(super) fn answered(&self, number: usize, status: u16) {
        let mut log = self.lock();
        log.answers += 1;
        let order = log.answers;
        log.exchanges[number].upstream = Some(status);
        log.exchanges[number].order = Some(order);
        log.exchanges[number].finished = Some(Timestamp::now());
    }

    pub(super) fn told(&self, number: usize, status: u16) {
        self.lock().exchanges[number].told = Some(status);
    }

    pub(super) fn all(&self) -> Vec<Exchange> {
        self.lock().exchanges.clone()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().exchanges.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Every request, the server's status and the status that the client received.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::request::ProxiedRequest;

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub request: ProxiedRequest,
    pub at: Timestamp,
    /// The server's status, if the request was forwarded and answered.
    pub server_status: Option<u16>,
    /// The position among all responses of the server: the order in which requests were executed, as far as a client
    /// can know it.
    pub order: Option<u64>,
    /// When the server responded.
    pub finished: Option<Timestamp>,
    /// The status that the client received; none if its connection was closed, or it still waits.
    pub client_status: Option<u16>,
}

impl Exchange {
    /// Returns whether the server executed it.
    pub fn succeeded(&self) -> bool {
        self.server_status.is_some_and(|status| (200..300).contains(&status))
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
    pub(super) fn begin(&self, request: &ProxiedRequest) -> usize {
        let mut log = self.lock();
        log.exchanges.push(Exchange {
            request: request.clone(),
            at: Timestamp::now(),
            server_status: None,
            order: None,
            finished: None,
            client_status: None,
        });
        log.exchanges.len() - 1
    }

    pub(super) fn server_responded(&self, number: usize, status: u16) {
        let mut log = self.lock();
        log.answers += 1;
        let order = log.answers;
        log.exchanges[number].server_status = Some(status);
        log.exchanges[number].order = Some(order);
        log.exchanges[number].finished = Some(Timestamp::now());
    }

    pub(super) fn client_received(&self, number: usize, status: u16) {
        self.lock().exchanges[number].client_status = Some(status);
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

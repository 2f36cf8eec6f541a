//! A proxy between a broker and its PostgreSQL. It understands enough of the wire protocol to know which statement
//! passes, and can hold it, close the connection or go silent exactly there: before a COMMIT is forwarded, after it was
//! executed and before its result returns, at the n-th INSERT.
//!
//! ```text
//! pgproxy/wire.rs     messages: their boundaries, and the statement that each carries
//! pgproxy/faults.rs   matchers and faults for the rule engine (`rules.rs`)
//! pgproxy/serve.rs    the listener, and the two directions of one connection
//! ```
//!
//! It does not support TLS: a broker in a test requests it, is refused, and continues without TLS.

mod faults;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use crate::rules::Rule;
use faults::TimedFault;
pub use faults::{Fault, Matcher, When};
use serve::Shared;
pub use wire::{Statement, Transaction};

/// The state of the whole link between broker and PostgreSQL, in addition to rules for single statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// Drops everything without closing: open connections stay silent for ever, new ones are never answered.
    Blackhole,
    /// Closes new connections at once.
    Refusing,
}

/// One proxy in front of one PostgreSQL server, usually for one replica.
#[derive(Debug)]
pub struct PgProxy {
    port: u16,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl PgProxy {
    /// Starts a proxy in front of the server that listens on this port.
    pub async fn in_front_of(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen for PostgreSQL")?;
        let own = listener.local_addr()?.port();
        let shared = Arc::new(Shared::new(port));
        let server = tokio::spawn(serve::listen(listener, Arc::clone(&shared)));
        Ok(Self { port: own, shared, server })
    }

    /// Returns the address of a database behind this proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Installs a rule: from now on, statements that match meet this fault. If several rules match, the first one
    /// installed applies.
    pub fn when(&self, matcher: Matcher, when: When, fault: Fault) -> Rule {
        self.shared.rules.install(matcher, TimedFault { when, fault })
    }

    /// Sets the state of the whole link. Connections that were open during a blackhole stay silent.
    pub fn set_link(&self, link: Link) {
        self.shared.set_link(link);
    }

    /// Forwards to the server on another port from now on, and closes all open connections.
    pub fn redirect(&self, port: u16) {
        self.shared.redirect(port);
        self.shared.cut_all();
    }

    /// Closes all open connections.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Ends every fault: removes the rules, forwards held statements and accepts new connections.
    pub fn heal(&self) {
        self.shared.set_link(Link::Up);
        self.shared.rules.remove_all();
    }

    /// Returns the number of open connections through this proxy.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }
}

impl Drop for PgProxy {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.rules.remove_all();
        self.shared.cut_all();
    }
}

//! A proxy between a broker and its PostgreSQL that understands just enough of the wire protocol to know which
//! statement passes, and can hold it, cut the connection or go silent exactly there: before a COMMIT is passed on,
//! after it was carried out and before its answer returns, at the n-th INSERT.
//!
//! ```text
//! pgproxy/wire.rs     messages: where one ends, and which statement it carries
//! pgproxy/rules.rs    which statements meet which fault; the test's grip on a rule
//! pgproxy/serve.rs    the listener, and the two directions of one connection
//! ```
//!
//! It speaks no TLS: a broker in a test asks for it, is told no, and goes on without.

mod rules;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use rules::{Fault, Matcher, Moment, Rule, When};
use serve::Shared;
pub use wire::Passed;

/// What the whole link does, beside what single rules do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// Nothing passes, and nobody is told: what was open stays silent for ever, what is new is never answered.
    Black,
    /// New connections are closed at once.
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
    /// In front of the server that listens on this port.
    pub async fn in_front_of(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen for PostgreSQL")?;
        let own = listener.local_addr()?.port();
        let shared = Arc::new(Shared::new(port));
        let server = tokio::spawn(serve::listen(listener, Arc::clone(&shared)));
        Ok(Self { port: own, shared, server })
    }

    /// The address of a database behind this proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// From now on, statements that match meet this fault. Of several rules, the one installed first counts.
    pub fn when(&self, matcher: Matcher, when: When, fault: Fault) -> Rule {
        self.shared.install(matcher, when, fault)
    }

    /// Sets what the whole link does. Connections that were open while it was black stay silent.
    pub fn set_link(&self, link: Link) {
        self.shared.set_link(link);
    }

    /// Closes every connection that is open now.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Ends every fault: rules go, what is held goes on, new connections pass.
    pub fn heal(&self) {
        self.shared.set_link(Link::Up);
        self.shared.remove_all();
    }

    /// How many connections are open through this proxy.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }
}

impl Drop for PgProxy {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.remove_all();
        self.shared.cut_all();
    }
}

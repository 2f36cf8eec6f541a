//! The fault proxy: stands between an agent and its API server, or its broker, and does what networks and
//! servers do on bad days, exactly when a test wants it.
//!
//! It terminates TLS with a certificate of the test's own authority and opens TLS to the real server, so that
//! both sides verify whom they talk to, as they would in earnest. HTTP/1.1 on both sides: there an answer that is
//! cut off looks like one.
//!
//! ```text
//! proxy/asked.rs     one request: what it is about
//! proxy/rules.rs     which requests meet which fault, from when on and how often; the test's grip on a rule
//! proxy/canned.rs    answers that the server never gave
//! proxy/stream.rs    watches, line by line: freeze, swallow, say something else
//! proxy/trace.rs     what was asked, what the server answered, what the client was told
//! proxy/serve.rs     the listener, and how one request is carried out
//! ```
//!
//! A *write* goes on without its client: whoever is killed while its request is held has still sent it.

mod asked;
mod canned;
mod rules;
mod serve;
mod stream;
#[cfg(test)]
mod tests;
mod trace;

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::scratch::Scratch;
use crate::tls::Authority;
pub use asked::{Asked, Place};
pub use canned::Canned;
pub use rules::{Action, Matcher, Rule, Snapshot};
use serve::Shared;
pub use trace::Exchange;

/// Where a client finds the proxy, and whom it has to trust there.
#[derive(Clone, Debug)]
pub struct Route {
    pub url: String,
    /// PEM
    pub authority: String,
}

/// One proxy in front of one server.
#[derive(Debug)]
pub struct FaultProxy {
    route: Route,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
    _scratch: Scratch,
}

impl FaultProxy {
    /// In front of a server whose certificate `trusted` (PEM) signed; the proxy's own is signed by `authority`.
    pub async fn in_front_of(upstream: &str, trusted: &str, authority: &Authority) -> Result<Self> {
        let scratch = Scratch::new("proxy")?;
        let identity = authority.server(&scratch, "fault-proxy", &[])?;
        let shared = Arc::new(Shared::new(upstream, trusted)?);
        let (address, server) = serve::listen(&identity, shared.clone()).await?;
        let route = Route { url: format!("https://{address}"), authority: authority.pem() };
        Ok(Self { route, shared, server, _scratch: scratch })
    }

    /// In front of a cluster's API server.
    pub async fn of_cluster(cluster: &Cluster) -> Result<Self> {
        let authority = Authority::new("brokkr-test-fault-proxy")?;
        Self::in_front_of(cluster.url(), &cluster.facts().authority, &authority).await
    }

    /// In front of a fleet's broker; who trusts the broker trusts the proxy.
    pub async fn of_broker(fleet: &Fleet) -> Result<Self> {
        let authority = fleet.authority();
        Self::in_front_of(&fleet.broker.url(), &authority.pem(), authority)
            .await
            .context("cannot start a proxy in front of the broker")
    }

    pub fn route(&self) -> Route {
        self.route.clone()
    }

    pub fn url(&self) -> &str {
        &self.route.url
    }

    /// From now on, what matches meets this fault. Of several rules that match, the one installed first counts.
    pub fn when(&self, matcher: Matcher, action: Action) -> Rule {
        self.shared.install(matcher, action)
    }

    /// Ends every fault: rules go, what is held goes on, frozen watches end.
    pub fn heal(&self) {
        self.shared.remove_all();
    }

    /// Everything that was asked so far, in order.
    pub fn trace(&self) -> Vec<Exchange> {
        self.shared.trace.all()
    }

    /// How many requests came in so far: a mark for [`FaultProxy::since`].
    pub fn mark(&self) -> usize {
        self.shared.trace.len()
    }

    pub fn since(&self, mark: usize) -> Vec<Exchange> {
        self.trace().into_iter().skip(mark).collect()
    }

    /// The last answer of each LIST so far, to be told again later by [`Action::Older`].
    pub fn snapshot_of_lists(&self) -> Snapshot {
        self.shared.lists()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.remove_all();
    }
}

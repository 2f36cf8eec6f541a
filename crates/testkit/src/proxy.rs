//! The fault proxy between an agent and its API server or its broker: injects failures of networks and servers exactly
//! when a test wants them.
//!
//! It terminates TLS with a certificate of the test's own authority and opens TLS to the real server, so that both sides
//! verify each other as in production. It uses HTTP/1.1 on both sides, because there an incomplete response is recognisable.
//!
//! ```text
//! proxy/request.rs    one request and the resource that it is about
//! proxy/faults.rs     matchers and faults for the rule engine (`rules.rs`)
//! proxy/response.rs   responses that the proxy makes itself
//! proxy/stream.rs     watches, line by line: freeze, drop events, send another line
//! proxy/trace.rs      every request, the server's status and the status that the client received
//! proxy/serve.rs      the listener, and how one request is processed
//! ```
//!
//! A *write* continues without its client: if a process is killed while its request is held, the request was
//! still sent.

mod faults;
mod request;
mod response;
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
pub use crate::rules::Rule;
use crate::scratch::Scratch;
use crate::tls::Authority;
pub use faults::{Action, ListSnapshot, Matcher};
pub use request::{ProxiedRequest, ResourcePath};
pub use response::CannedResponse;
use serve::Shared;
pub use trace::Exchange;

/// The address of the proxy and the authority that signs its certificate.
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
    /// Starts a proxy in front of a server that has a certificate signed by `trusted` (PEM); the proxy's own certificate is
    /// signed by `authority`.
    pub async fn in_front_of(upstream: &str, trusted: &str, authority: &Authority) -> Result<Self> {
        let scratch = Scratch::new("proxy")?;
        let identity = authority.server(&scratch, "fault-proxy", &[])?;
        let shared = Arc::new(Shared::new(upstream, trusted)?);
        let (address, server) = serve::listen(&identity, shared.clone()).await?;
        let route = Route { url: format!("https://{address}"), authority: authority.pem() };
        Ok(Self { route, shared, server, _scratch: scratch })
    }

    /// Starts a proxy in front of a cluster's API server.
    pub async fn of_cluster(cluster: &Cluster) -> Result<Self> {
        let authority = Authority::new("brokkr-test-fault-proxy")?;
        Self::in_front_of(cluster.url(), &cluster.facts().authority, &authority).await
    }

    /// Starts a proxy in front of a fleet's broker; a client that trusts the broker trusts the proxy.
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

    /// Installs a rule: from now on, requests that match meet this fault. If several rules match, the first one installed
    /// applies.
    pub fn when(&self, matcher: Matcher, action: Action) -> Rule {
        self.shared.rules.install(matcher, action)
    }

    /// Ends every fault: removes the rules, forwards held requests and closes frozen watches.
    pub fn heal(&self) {
        self.shared.rules.remove_all();
    }

    /// Ends every open watch, as the server does after a while. The client has to begin new ones.
    pub fn end_watches(&self) {
        self.shared.end_watches();
    }

    /// Returns all requests so far, in order.
    pub fn trace(&self) -> Vec<Exchange> {
        self.shared.trace.all()
    }

    /// Returns the number of requests so far, for [`FaultProxy::since`].
    pub fn mark(&self) -> usize {
        self.shared.trace.len()
    }

    pub fn since(&self, mark: usize) -> Vec<Exchange> {
        self.trace().into_iter().skip(mark).collect()
    }

    /// Returns the last response of each LIST so far, for [`Action::StaleLists`].
    pub fn snapshot_of_lists(&self) -> ListSnapshot {
        self.shared.lists()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
        self.shared.rules.remove_all();
    }
}

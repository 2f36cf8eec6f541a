//! Name resolution. Every result is checked against the egress policy, and the client connects to the checked addresses:
//! there is no second lookup that could return others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::webhooks::egress_policy::EgressPolicy;

/// Resolves a name to addresses.
pub trait Resolver: Send + Sync {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// A resolver that fails if the egress policy refuses an address.
pub struct PolicyResolver {
    pub policy: EgressPolicy,
    pub resolver: Arc<dyn Resolver>,
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy.clone(), self.resolver.lookup(name.as_str().to_owned()));
        Box::pin(async move {
            let addresses = lookup.await?;
            policy.addresses(&addresses)?;
            // The client replaces port 0 by the port of the URL.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

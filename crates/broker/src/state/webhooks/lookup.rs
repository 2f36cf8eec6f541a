//! From names to addresses. Every lookup passes the guard, and what passed is what is connected to: there is no second
//! lookup in between that could answer something else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::domain::webhooks::guard::Guard;

/// Who knows the addresses of a name.
pub trait Lookup: Send + Sync {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// A lookup that answers only what the guard lets pass.
pub struct Guarded {
    pub guard: Guard,
    pub lookup: Arc<dyn Lookup>,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, looking) = (self.guard.clone(), self.lookup.lookup(name.as_str().to_owned()));
        Box::pin(async move {
            let addresses = looking.await?;
            guard.addresses(&addresses)?;
            // The client puts the port of the URL in place of zero.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

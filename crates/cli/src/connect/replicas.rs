//! Clients for each replica behind the broker's name.

use std::net::SocketAddr;
use std::time::Duration;

use brokkr_client::{Client, RetryPolicy};

use super::{Found, client, find, of_config};
use crate::args::Global;
use crate::config::{Context, Folder};
use crate::failure::{Exit, Failure, Result};

/// At most this many addresses are used.
const MOST_ADDRESSES: usize = 16;
/// A resolver that does not respond must not block the command.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The broker, and each of its addresses.
#[derive(Debug)]
pub struct Replicas {
    /// Without retries.
    pub client: Client,
    /// Without a token: readiness is public.
    pub each: Vec<(String, Client)>,
}

pub async fn connect_to_replicas(global: &Global) -> Result<Replicas> {
    let Found { context, token } = find(global, &Folder::of_this_user().map_err(of_config)?)?;
    let client = client(&context, token, global.project.as_ref(), RetryPolicy::none())?;
    // A proxy resolves the name itself, and so chooses the replica.
    let addresses = if client.proxy_hint().is_some() { Vec::new() } else { addresses(&context).await };
    let mut each = Vec::new();
    for address in &addresses {
        each.push((address.to_string(), without_token(&context, Some(*address))?));
    }
    if each.is_empty() {
        let origin = context.server.origin().ascii_serialization();
        each.push((origin, without_token(&context, None)?));
    }
    Ok(Replicas { client, each })
}

async fn addresses(context: &Context) -> Vec<SocketAddr> {
    let server = &context.server;
    let (Some(host), Some(port)) = (server.host_str(), server.port_or_known_default()) else {
        return Vec::new();
    };
    let host = host.trim_matches(['[', ']']);
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port))).await;
    let mut addresses: Vec<SocketAddr> = found.ok().and_then(Result::ok).into_iter().flatten().collect();
    addresses.sort();
    addresses.dedup();
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

fn without_token(context: &Context, address: Option<SocketAddr>) -> Result<Client> {
    let mut builder =
        Client::builder(context.server.clone()).user_agent(concat!("brokkr/", env!("CARGO_PKG_VERSION")));
    if let Some(pem) = &context.certificate_authorities {
        builder = builder.ca_pem(pem.as_bytes());
    }
    if let Some(address) = address {
        builder = builder.address(address);
    }
    builder.build().map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

//! Every replica behind the broker's name, for whoever wants to know of each.

use std::net::SocketAddr;
use std::time::Duration;

use brokkr_client::{Client, RetryPolicy};

use super::{Found, client, find, of_config};
use crate::args::Global;
use crate::config::{Context, Folder};
use crate::failure::{Exit, Failure};

/// More addresses than this are not asked one by one.
const MOST: usize = 16;
/// A resolver that does not answer must not hold everything else up.
const LOOKING_UP: Duration = Duration::from_secs(5);

/// The broker, and each address at which it is.
#[derive(Debug)]
pub struct Replicas {
    /// As every command talks to it, though it tries once only.
    pub client: Client,
    /// Without a token: whether a replica is ready, everybody may ask.
    pub each: Vec<(String, Client)>,
}

pub async fn connect_to_replicas(global: &Global) -> Result<Replicas, Failure> {
    let Found { context, token } = find(global, &Folder::of_this_user().map_err(of_config)?)?;
    let client = client(&context, token, global.project.as_ref(), RetryPolicy::none())?;
    // A proxy looks names up by itself, and so chooses the replica.
    let addresses = if client.proxy_hint().is_some() { Vec::new() } else { addresses(&context).await };
    let mut each = Vec::new();
    for address in &addresses {
        each.push((address.to_string(), without_token(&context, Some(*address))?));
    }
    if each.is_empty() {
        let place = context.server.origin().ascii_serialization();
        each.push((place, without_token(&context, None)?));
    }
    Ok(Replicas { client, each })
}

async fn addresses(context: &Context) -> Vec<SocketAddr> {
    let server = &context.server;
    let (Some(host), Some(port)) = (server.host_str(), server.port_or_known_default()) else {
        return Vec::new();
    };
    let host = host.trim_matches(['[', ']']);
    let found = tokio::time::timeout(LOOKING_UP, tokio::net::lookup_host((host, port))).await;
    let mut addresses: Vec<SocketAddr> = found.ok().and_then(Result::ok).into_iter().flatten().collect();
    addresses.sort();
    addresses.dedup();
    addresses.truncate(MOST);
    addresses
}

fn without_token(context: &Context, address: Option<SocketAddr>) -> Result<Client, Failure> {
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

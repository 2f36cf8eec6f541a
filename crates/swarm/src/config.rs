//! The configuration of a swarm.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::{InstallationId, SequenceId, StackId};
use rustls::pki_types::ServerName;
use url::Url;

use crate::identity::Identity;

/// The address of a broker.
#[derive(Clone, Debug)]
pub struct Broker {
    pub address: SocketAddr,
    /// The name in its certificate.
    pub name: ServerName<'static>,
}

impl Broker {
    /// Parses `https://host:port`; the swarm supports only TLS, as agents do.
    pub fn at(url: &Url) -> Result<Self> {
        ensure!(url.scheme() == "https", "the swarm supports only TLS: {url} is not https");
        let host = url.host_str().context("the broker's URL has no host")?.to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let mut found =
            (host.as_str(), port).to_socket_addrs().with_context(|| format!("cannot resolve {host}"))?;
        let address = found.next().with_context(|| format!("{host} has no address"))?;
        Ok(Self { address, name: ServerName::try_from(host)? })
    }
}

/// How agents are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1 with a separate TLS connection for each agent, as in a fleet behind many addresses.
    Own,
    /// HTTP/2 with this many agents on each connection, as behind a proxy. For more agents than the limit of open files allows.
    Shared { agents: usize },
}

impl Transport {
    /// Returns the number of the connection that an agent uses.
    pub(crate) fn connection(self, agent: usize) -> usize {
        match self {
            Self::Own => agent,
            Self::Shared { agents } => agent / agents.max(1),
        }
    }
}

/// What agents do with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Count it, and do nothing else.
    Watch,
    /// Report that they hold its stacks, fetch and check their contents, and report the results.
    Deliver,
}

/// The probabilities of failures, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Failures {
    /// The content cannot be applied, and the report says so.
    pub apply: f64,
    /// The connection is cut after a write was sent: the agent does not know whether it happened.
    pub lost_answer: f64,
    /// A batch of reports is sent once more under another key.
    pub report_twice: f64,
    /// The connection is dropped before a poll.
    pub reconnect: f64,
    /// The agent sends nothing for [`Config::silence`].
    pub silence: f64,
}

/// The number of causes of failures.
pub const CAUSES: u64 = 4;

/// Which updates fail. An update is a version of a stack of which the agent has begun an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub struct BadUpdates {
    /// Updates fail on this many agents, which are spread evenly over the first `of`.
    pub agents: usize,
    pub of: usize,
    /// This many updates of the whole swarm succeed first, on any agent.
    pub healthy_first: u64,
}

impl BadUpdates {
    pub(crate) fn fails(&self, agent: usize, begun_before: u64) -> bool {
        let is_bad = agent < self.of && agent * self.agents % self.of < self.agents;
        is_bad && begun_before >= self.healthy_first
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// Replicas; agents are distributed over them, and use the next one if one fails.
    pub brokers: Vec<Broker>,
    /// Certificates to trust, PEM.
    pub authorities: Vec<u8>,
    pub installation: InstallationId,
    /// The agents' identities; see [`crate::enrol`] and [`crate::join`].
    pub agents: Vec<Identity>,
    /// Stacks that every agent has from the start. The database has to say the same.
    pub held: Vec<(StackId, SequenceId)>,
    /// The seed of all random choices.
    pub seed: u64,
    pub transport: Transport,
    /// How long a poll waits for a change, less up to a tenth at random. Polls with zero are answered at once.
    pub wait: Duration,
    /// The pause after a poll without changes.
    pub pause: Duration,
    pub duty: Reaction,
    /// How long applying takes.
    pub applying: Range<Duration>,
    /// The time over which the first connections are spread.
    pub start_within: Duration,
    /// The largest number of concurrent handshakes; the broker gives each ten seconds.
    pub handshakes: usize,
    pub failures: Failures,
    /// Failures have this many different causes, at most [`CAUSES`].
    pub causes: u64,
    pub bad_updates: BadUpdates,
    pub silence: Range<Duration>,
}

impl Config {
    /// Returns a configuration with everything that an agent does, and without failures.
    #[must_use]
    pub fn new(
        brokers: Vec<Broker>,
        authorities: Vec<u8>,
        installation: InstallationId,
        agents: Vec<Identity>,
    ) -> Self {
        Self {
            brokers,
            authorities,
            installation,
            agents,
            held: Vec::new(),
            seed: 0,
            transport: Transport::Own,
            wait: Duration::from_secs(60),
            pause: Duration::ZERO,
            duty: Reaction::Deliver,
            applying: Duration::ZERO..Duration::ZERO,
            start_within: Duration::ZERO,
            handshakes: 64,
            failures: Failures::default(),
            causes: CAUSES,
            bad_updates: BadUpdates::default(),
            silence: Duration::from_secs(1)..Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_as_many_agents_are_bad_as_configured_once_enough_updates_have_succeeded() {
        let bad = BadUpdates { agents: 3, of: 95, healthy_first: 1 };
        assert_eq!((0..200).filter(|agent| bad.fails(*agent, 1)).collect::<Vec<_>>(), [0, 32, 64]);
        assert!(!bad.fails(0, 0));
        assert!(!BadUpdates::default().fails(0, 0));
    }
}

//! What can be chosen. The defaults are the sizes that the figures are about.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Clone, Debug, Args)]
pub struct BrokerArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = BrokerPart::ALL)]
    pub only: Vec<BrokerPart>,
    /// How often broker and bare counterpart take turns; medians are told.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How long each turn lasts.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub turn: Duration,
    /// Agents that poll, and that one submission concerns.
    #[arg(long, default_value_t = 10_000)]
    pub agents: usize,
    /// Agents that wait on one replica.
    #[arg(long, default_value_t = 50_000)]
    pub waiting: usize,
    /// Connections of a closed loop of requests.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Connections to the database, of the broker and of its bare counterpart.
    #[arg(long, default_value_t = 20)]
    pub database_connections: u32,
    /// Reports in one batch.
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Agents in the database when the broker restarts.
    #[arg(long, default_value_t = 1_000_000)]
    pub fleet: usize,
    /// Stacks in the database when the broker restarts.
    #[arg(long, default_value_t = 10_000)]
    pub stacks: usize,
    /// Wait this long before each part's broker ends, for a profiler. Tells its process id.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub linger: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BrokerPart {
    /// Statements and CPU of a poll that brings nothing new.
    Polls,
    /// Submissions a second, for one stack and for 200.
    Submissions,
    /// Reports a second.
    Reports,
    /// One submission for everybody.
    Fanout,
    /// Memory of agents that wait, and waking them.
    Waiting,
    /// Restart, previews and pages with a million agents.
    Million,
}

impl BrokerPart {
    /// In the order in which they run.
    pub const ALL: [Self; 6] =
        [Self::Polls, Self::Submissions, Self::Reports, Self::Fanout, Self::Waiting, Self::Million];
}

impl std::fmt::Display for BrokerPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", clap::builder::PossibleValue::get_name))
    }
}

#[derive(Clone, Debug, Args)]
pub struct BareArgs {
    #[arg(long)]
    pub listen: SocketAddr,
    #[arg(long)]
    pub certificate: PathBuf,
    #[arg(long)]
    pub key: PathBuf,
}

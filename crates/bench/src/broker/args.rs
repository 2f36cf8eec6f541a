//! Command-line options. The defaults are the sizes of the published figures.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Clone, Debug, Args)]
pub struct BrokerArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = BrokerPart::ALL)]
    pub only: Vec<BrokerPart>,
    /// Repeat each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Measure for this long each time.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub turn: Duration,
    /// Run this many agents for the parts `polls` and `fanout`.
    #[arg(long, default_value_t = 10_000)]
    pub agents: usize,
    /// Let this many agents wait on one replica.
    #[arg(long, default_value_t = 50_000)]
    pub waiting: usize,
    /// Use this many connections for requests in a closed loop.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Give the broker and the minimal server this many database connections.
    #[arg(long, default_value_t = 20)]
    pub database_connections: u32,
    /// Let this many agents send reports one by one.
    #[arg(long, default_value_t = 1_000)]
    pub reporters: usize,
    /// Send this many reports in one batch.
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Use this many agents for the parts `million` and `rollout`.
    #[arg(long, default_value_t = 1_000_000)]
    pub fleet: usize,
    /// Use this many stacks for the parts `million` and `rollout`.
    #[arg(long, default_value_t = 10_000)]
    pub stacks: usize,
    /// Use this many agents for the part `views`.
    #[arg(long, default_value_t = 100_000)]
    pub view_agents: usize,
    /// Use this many stacks for the part `views`, each of which reaches all agents.
    #[arg(long, default_value_t = 50)]
    pub view_stacks: usize,
    /// Also write the JSON object into this folder, named by date and commit.
    #[arg(long)]
    pub store: Option<PathBuf>,
    /// Wait this long before each broker ends, and print its process id for a profiler.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub linger: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BrokerPart {
    /// Measure statements and CPU of a poll without changes.
    Polls,
    /// Measure submissions per second, for one stack and for 200.
    Submissions,
    /// Measure reports per second.
    Reports,
    /// Measure one submission for all agents.
    Fanout,
    /// Measure the memory of waiting agents, and the time to wake them.
    Waiting,
    /// Measure restart, previews and pages with a million agents.
    Million,
    /// Measure a rollout over a million agents: its steps, its memory, and polls meanwhile.
    Rollout,
    /// Measure the views of a fleet: their time, their memory, and a restart.
    Views,
}

impl BrokerPart {
    /// In the order in which they run.
    pub const ALL: [Self; 8] = [
        Self::Polls,
        Self::Submissions,
        Self::Reports,
        Self::Fanout,
        Self::Waiting,
        Self::Million,
        Self::Rollout,
        Self::Views,
    ];
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

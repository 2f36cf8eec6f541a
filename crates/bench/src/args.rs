//! What can be chosen. The defaults are the sizes that the numbers are about.

use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

pub use crate::broker::args::{BareArgs, BrokerArgs};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    about = "Measure Brokkr beside its peers"
)]
pub enum Command {
    /// The agent at full size: time, requests, memory, repair; beside bare PATCHes, Flux's engine and kubectl.
    Agent(AgentArgs),
    /// The broker at full size: polls, waiting agents, fan-out, submissions, reports, restart; beside bare counterparts.
    Broker(BrokerArgs),
    /// The bare counterpart of a poll: an axum handler over TLS that answers 304, for the broker's measurements.
    #[command(hide = true)]
    Bare(BareArgs),
}

#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    pub only: Vec<Part>,
    /// How often each contestant takes its turn; medians are told.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Objects of the one stack that is created and changed.
    #[arg(long, default_value_t = 1_000)]
    pub objects: usize,
    /// Bare requests at the same time.
    #[arg(long, default_value_t = 32)]
    pub in_flight: usize,
    /// How long to listen for requests when nothing changed.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub quiet: Duration,
    /// Objects of the agent whose memory is measured, in stacks of a tenth each.
    #[arg(long, default_value_t = 10_000)]
    pub many_objects: usize,
    /// Stacks of four objects that become ready.
    #[arg(long, default_value_t = 1_000)]
    pub stacks: usize,
    /// Edits by somebody else, each of which is to be put back.
    #[arg(long, default_value_t = 500)]
    pub edits: usize,
    /// Changes a second to objects that are nobody's business while drift is repaired.
    #[arg(long, default_value_t = 50)]
    pub unrelated: u32,
    /// How long to idle.
    #[arg(long, default_value = "600s", value_parser = humantime::parse_duration)]
    pub idle: Duration,
    /// Leave Flux out.
    #[arg(long)]
    pub no_flux: bool,
    /// A further argument of `brokkr-agent run`, for experiments.
    #[arg(long = "agent-argument", allow_hyphen_values = true)]
    pub agent_arguments: Vec<String>,
    /// Keep the agent's log, at this level, in this folder.
    #[arg(long)]
    pub keep_log: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// 1,000 objects: created, left alone, a tenth changed.
    Create,
    /// Edits put back while others are busy in the same cluster.
    Drift,
    /// Ten minutes of nothing.
    Idle,
    /// 10,000 objects: memory, and a restart.
    Memory,
    /// 1,000 stacks, until all are ready under kwok.
    Stacks,
}

impl Part {
    /// In the order in which they run: controllers start only for the last, and would disturb the others.
    pub const ALL: [Self; 5] = [Self::Create, Self::Drift, Self::Idle, Self::Memory, Self::Stacks];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", clap::builder::PossibleValue::get_name))
    }
}

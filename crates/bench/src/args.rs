//! Command-line options. The defaults are the sizes of the published numbers.

use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

pub use crate::broker::alerts::AlertArgs;
pub use crate::broker::args::{BareArgs, BrokerArgs};
pub use crate::broker::console::ConsoleArgs;
pub use crate::broker::rollouts::args::RolloutArgs;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    about = "Measure Brokkr beside its peers"
)]
pub enum Command {
    /// Measure the agent: time, requests, memory, repair; beside bare PATCHes, Flux's engine and kubectl.
    Agent(AgentArgs),
    /// Measure the broker: polls, waiting agents, fan-out, submissions, reports, restart, rollouts; beside minimal servers.
    Broker(BrokerArgs),
    /// Roll a bad version out to a swarm while the leader of two replicas is killed and paused, and check that it stops.
    Rollouts(RolloutArgs),
    /// Let a swarm fail with a few causes and recover while the broker is killed, and count the messages of a webhook.
    Alerts(AlertArgs),
    /// Show a fleet in a browser, idle and while versions reach every agent, and measure the page.
    Console(ConsoleArgs),
    /// Serve 304 over TLS with a minimal axum handler, for comparison with the broker's polls.
    #[command(hide = true)]
    Bare(BareArgs),
}

#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Measure only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    pub only: Vec<Part>,
    /// Repeat each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Create and change a stack with this many objects.
    #[arg(long, default_value_t = 1_000)]
    pub objects: usize,
    /// Send this many bare requests concurrently.
    #[arg(long, default_value_t = 32)]
    pub in_flight: usize,
    /// Count requests for this long when nothing changes.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub quiet: Duration,
    /// Measure memory with this many objects, in ten stacks.
    #[arg(long, default_value_t = 10_000)]
    pub many_objects: usize,
    /// Change the status of this many objects per second.
    #[arg(long, default_value_t = 100)]
    pub status_changes: u32,
    /// Deliver this many stacks of four objects until they are ready.
    #[arg(long, default_value_t = 1_000)]
    pub stacks: usize,
    /// Make this many edits that the agent has to revert.
    #[arg(long, default_value_t = 500)]
    pub edits: usize,
    /// Change unrelated objects this many times per second during the repair.
    #[arg(long, default_value_t = 50)]
    pub unrelated: u32,
    /// Idle for this long.
    #[arg(long, default_value = "600s", value_parser = humantime::parse_duration)]
    pub idle: Duration,
    /// Skip Flux.
    #[arg(long)]
    pub no_flux: bool,
    /// Pass a further argument to `brokkr-agent run`.
    #[arg(long = "agent-argument", allow_hyphen_values = true)]
    pub agent_arguments: Vec<String>,
    /// Write the agent's log, at debug level, and the API server's audit log to this folder.
    #[arg(long)]
    pub keep_log: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Create 1,000 objects, leave them alone, change a tenth.
    Create,
    /// Revert edits while unrelated objects change.
    Drift,
    /// Idle for ten minutes.
    Idle,
    /// Change the status of objects in a stack of 10,000, and repair another stack meanwhile.
    Churn,
    /// Measure memory and a restart with 10,000 objects.
    Memory,
    /// Deliver 1,000 stacks until all are ready.
    Stacks,
}

impl Part {
    /// In the order in which they run: controllers start only for the last, and would disturb the others.
    pub const ALL: [Self; 6] =
        [Self::Create, Self::Drift, Self::Idle, Self::Churn, Self::Memory, Self::Stacks];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", clap::builder::PossibleValue::get_name))
    }
}

//! `brokkr wait`, and the flags of commands that can wait.

use std::time::Duration;

use brokkr_api::{Name, SequenceId};
use clap::ValueEnum;

/// Wait until a version of a stack has arrived on every agent, or a deleted stack is gone
///
/// A wait is for one sequence id: what agents reported of an earlier version does not count.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr wait web --for healthy --sequence 42 --timeout 10m")]
pub struct Wait {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// What to wait for
    #[arg(long = "for", value_enum, default_value_t = For::Healthy, value_name = "GOAL")]
    pub goal: For,
    /// The version, as apply printed it; without it, the newest one at this moment
    #[arg(long, value_name = "SEQUENCE")]
    pub sequence: Option<SequenceId>,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration)]
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum For {
    /// Everything of it is written
    Applied,
    /// Everything of it does its work
    Healthy,
    /// Every agent has seen it gone
    Deleted,
}

/// For commands that submit a version.
#[derive(Clone, Debug, clap::Args)]
pub struct Waiting {
    /// Wait until every targeted agent has this version, healthy
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::duration, requires = "wait")]
    pub timeout: Duration,
}

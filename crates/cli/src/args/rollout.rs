//! `brokkr rollout …`, and how `brokkr apply` rolls a version out.

use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::rollouts::Share;
use clap::Subcommand;

/// How a submitted version reaches the agents.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rollout")]
pub struct RolloutArgs {
    /// Release the version in waves of these sizes, such as 1,10%,100%
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub waves: Vec<Share>,
    /// How long a wave must stay healthy before the next one begins
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub soak: Option<Duration>,
    /// Release the version to every agent at once
    #[arg(long, requires = "reason", conflicts_with_all = ["waves", "soak"])]
    pub now: bool,
    /// Record why; with --now
    #[arg(long, value_name = "TEXT", requires = "now")]
    pub reason: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// List the rollouts that have not ended
    List {
        /// Also list those that have ended
        #[arg(long)]
        all: bool,
    },
    /// Show how far the last rollout of a stack is, and what it waits for
    Show(OneRollout),
    /// Watch the last rollout of a stack until it ends or stops
    ///
    /// The exit status is 0 if it is completed, 3 if it is stopped or aborted, 6 if a newer version supersedes it, and 8 if it is
    /// completed with bad agents.
    Watch(OneRollout),
    /// Pause a rollout: release the version to no further agent
    Pause(OneRollout),
    /// Resume a paused or stopped rollout
    ///
    /// After a stop, the agents that are bad so far are accepted.
    Resume(OneRollout),
    /// Promote a rollout: begin its next wave now
    Promote(ReasonedRollout),
    /// Skip the rest of the soak time of a wave
    Skip(ReasonedRollout),
    /// Stop a rollout: withdraw the version
    ///
    /// Agents that have begun the version keep it; no other agent begins it.
    Stop(ReasonedRollout),
    /// Abort a rollout: withdraw the version for good
    Abort(ReasonedRollout),
}

#[derive(Debug, clap::Args)]
pub struct OneRollout {
    /// Name of the stack
    #[arg(value_parser = super::stack)]
    pub stack: Name,
}

#[derive(Debug, clap::Args)]
pub struct ReasonedRollout {
    /// Name of the stack
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Record why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

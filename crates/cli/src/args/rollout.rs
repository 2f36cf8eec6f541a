//! `brokkr rollout …`, and how `brokkr apply` rolls a version out.

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::rollouts::Share;
use brokkr_api::{Name, SequenceId};
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
    /// Skip the rest of the soak time of a wave, or the approvals that it waits for
    Skip(ReasonedRollout),
    /// Approve the next wave of a rollout, which waits for that
    Approve {
        #[command(flatten)]
        rollout: OneRollout,
        /// Approve only this version
        #[arg(long)]
        sequence: Option<SequenceId>,
    },
    /// Deny the next wave of a rollout: stop it
    Deny(ReasonedRollout),
    /// Stop a rollout: withdraw the version
    ///
    /// Agents that have begun the version keep it; no other agent begins it.
    Stop(ReasonedRollout),
    /// Abort a rollout: withdraw the version for good
    Abort(ReasonedRollout),
    /// Show the policies for rollouts of the installation, the project and a stack
    Policy {
        /// Name of a stack
        #[arg(value_parser = super::stack)]
        stack: Option<Name>,
    },
    SetPolicy(SetRolloutPolicy),
}

/// Set the policy for rollouts of a stack, the project or the installation
///
/// The file has the fields of the policy as YAML or JSON. What it leaves out comes from the next wider scope; an empty policy
/// removes the one that was set.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr rollout set-policy -f policy.yaml --stack web")]
pub struct SetRolloutPolicy {
    /// Read the policy from this file
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: PathBuf,
    /// Only for this stack
    #[arg(long, value_parser = super::stack, conflicts_with = "installation")]
    pub stack: Option<Name>,
    /// For all projects
    #[arg(long)]
    pub installation: bool,
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

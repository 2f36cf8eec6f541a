//! `brokkr agent upgrade …`

use std::time::Duration;

use brokkr_api::rollouts::Share;
use brokkr_api::{Selector, UpgradeId};
use clap::Subcommand;

/// Upgrade agents in waves, or manage an upgrade
///
/// Each agent replaces itself by the image, and goes back to its own image if the new one does not work. Only agents whose owners allow it
/// (`brokkr agent join --allow-upgrade`) get the offer. An upgrade stops if too many agents have gone back.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  brokkr agent upgrade --to registry.example/brokkr-agent@sha256:DIGEST --version 1.2.3 -l env=dev --wait\n  \
                  brokkr agent upgrade show 42 --agents"
)]
pub struct UpgradeAgents {
    #[command(flatten)]
    pub begin: Option<BeginUpgrade>,
    #[command(subcommand)]
    pub command: Option<UpgradeCommand>,
}

#[derive(Debug, clap::Args)]
pub struct BeginUpgrade {
    /// Offer this image, given by digest
    #[arg(long, value_name = "IMAGE@DIGEST")]
    pub to: String,
    /// The version that the image contains
    #[arg(long, value_name = "VERSION")]
    pub version: String,
    /// Only upgrade agents with matching labels, such as env=prod
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<Selector>,
    /// Upgrade the agents in waves of these sizes, such as 1,10%,100%
    #[arg(long, value_name = "SIZES", value_delimiter = ',', alias = "wave")]
    pub waves: Vec<Share>,
    /// How long a wave must stay healthy before the next one begins
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub soak: Option<Duration>,
    /// Wait until the upgrade ends or stops
    ///
    /// The exit status is 0 if it is completed, 3 if it is stopped or aborted, 6 if a newer upgrade supersedes it, and 8 if it is
    /// completed with bad agents.
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time; the upgrade goes on
    #[arg(long, value_name = "DURATION", value_parser = super::duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// List upgrades, newest first
    List {
        #[command(flatten)]
        rows: super::RowLimit,
    },
    /// Show how far an upgrade is, and what it waits for
    Show {
        #[command(flatten)]
        upgrade: OneUpgrade,
        /// List its agents instead, with the last step of each and the reason
        #[arg(long)]
        agents: bool,
        #[command(flatten)]
        rows: super::RowLimit,
    },
    /// Pause an upgrade: offer it to no further agent
    Pause(OneUpgrade),
    /// Resume a paused or stopped upgrade
    ///
    /// After a stop, the agents that are bad so far are accepted.
    Resume(OneUpgrade),
    /// Promote an upgrade: begin its next wave now
    Promote(ReasonedUpgrade),
    /// Skip the rest of the soak time of a wave, or the approvals that it waits for
    Skip(ReasonedUpgrade),
    /// Approve the next wave of an upgrade, which waits for that
    Approve(OneUpgrade),
    /// Deny the next wave of an upgrade: stop it
    Deny(ReasonedUpgrade),
    /// Stop an upgrade: take the offer back
    ///
    /// Agents that have begun go on; no other agent begins.
    Stop(ReasonedUpgrade),
    /// Abort an upgrade: take the offer back for good
    Abort(ReasonedUpgrade),
}

#[derive(Debug, clap::Args)]
pub struct OneUpgrade {
    /// Id of the upgrade
    #[arg(value_name = "ID")]
    pub id: UpgradeId,
}

#[derive(Debug, clap::Args)]
pub struct ReasonedUpgrade {
    /// Id of the upgrade
    #[arg(value_name = "ID")]
    pub id: UpgradeId,
    /// Record why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

//! `brokkr admin …`

use std::path::PathBuf;
use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::system::Settlement;
use clap::Subcommand;
use url::Url;

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// The broker's epoch, whether it is on hold, and what a restore left to settle
    Status,
    /// What must be true before an upgrade and after a restore: ok, look or bad, why, and what next; exits with 1 if
    /// something is bad
    Preflight,
    SupportBundle(SupportBundle),
    /// Stacks on which agents have a newer version than the restored database
    Ahead,
    /// Stacks that agents have and the restored database does not know
    Unknown,
    Settle(Settle),
}

/// Write one archive for whoever helps you
///
/// What `preflight` finds, versions, agents and stacks by name and state, errors, the last 500 events and 200 entries of the
/// audit log, as far as you may see them. No manifests, no values of Secrets, no tokens. It lists what could not be had.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin support-bundle --metrics http://broker-0:8781")]
pub struct SupportBundle {
    /// Where to write it, for you alone to read (- is stdout); brokkr-support-TIME.tar.gz if not given
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Where a replica shows its metrics, as its --admin-listen says; can be repeated
    #[arg(long, value_name = "URL")]
    pub metrics: Vec<Url>,
}

/// Settle a stack on which agents and the restored database differ
///
/// Whatever is chosen is published as a new version, so that it reaches every agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin settle web --take eu-1")]
pub struct Settle {
    /// By id, or by name
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub how: How,
    /// How long to wait for an agent to hand its content over
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = super::duration)]
    pub timeout: Duration,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct How {
    /// Publish what the database has
    #[arg(long)]
    pub keep_restored: bool,
    /// Publish what this agent has; a stack that the database lost is made again
    #[arg(long, value_name = "AGENT", value_parser = super::agent)]
    pub take: Option<Name>,
    /// Remove a stack that the database lost from every agent that has it
    #[arg(long)]
    pub delete: bool,
}

impl How {
    pub fn settlement(&self) -> Settlement {
        match &self.take {
            Some(agent) => Settlement::Take { agent: agent.to_string() },
            None if self.delete => Settlement::Delete,
            None => Settlement::KeepRestored,
        }
    }
}

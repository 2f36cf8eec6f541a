//! `brokkr admin …`

use std::path::PathBuf;

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
/// An agent never goes back to an older version: the restored content reaches it as a new one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin settle web --publish-restored")]
pub struct Settle {
    /// By id, or by name
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub how: How,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct How {
    /// Publish the restored content as a new version
    #[arg(long)]
    pub publish_restored: bool,
    /// Create a stack that the database does not know, without content, for the agents that hold it
    #[arg(long)]
    pub recreate: bool,
    /// Remove a stack that the database does not know from every agent that holds it
    #[arg(long)]
    pub delete: bool,
}

impl How {
    pub fn settlement(&self) -> Settlement {
        match self {
            Self { delete: true, .. } => Settlement::Delete,
            Self { recreate: true, .. } => Settlement::Recreate,
            Self { .. } => Settlement::PublishRestored,
        }
    }
}

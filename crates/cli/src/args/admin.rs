//! `brokkr admin …`

use std::path::PathBuf;

use brokkr_api::Name;
use brokkr_api::system::Settlement;
use clap::Subcommand;
use url::Url;

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Show the broker's version, epoch and restore state
    Status,
    /// Check the installation before an upgrade or after a restore
    ///
    /// Each check is ok, warning or failed, with the cause and the next action. The exit status is 1 if a check failed.
    Preflight,
    SupportBundle(SupportBundle),
    LiftHold(LiftHold),
    /// List stacks that are newer on an agent than in the restored database
    Ahead,
    /// List stacks that exist on agents but not in the restored database
    Unknown,
    /// List stacks that agents have although they are no targets of them
    Unconfirmed,
    Settle(Settle),
    Purge(Purge),
}

/// Write an archive with diagnostic data for support
///
/// The archive contains the result of `preflight`, versions, the names and states of agents and stacks, errors, the last 500
/// events and 200 audit entries, as far as your role allows. It contains no manifests, Secret values or tokens, and lists
/// what could not be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin support-bundle --metrics http://broker-0:8781")]
pub struct SupportBundle {
    /// File to write, readable only by you; - for stdout [default: brokkr-support-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Include the metrics of a replica, from its --admin-listen address; can be repeated
    #[arg(long, value_name = "URL")]
    pub metrics: Vec<Url>,
}

/// Lift the hold after a restore
///
/// Confirms that the restored database is the right one. Raises the epoch, so that agents accept responses again. `brokkr
/// admin status` shows why the broker is on hold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin lift-hold --reason \"restored to 14:00 on purpose, INC-42\"")]
pub struct LiftHold {
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Settle a stack that differs between agents and the restored database
///
/// Agents never go back to an older version, so the restored content is published as a new version. To publish other
/// content, submit it with `brokkr apply` instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  brokkr admin settle web --publish-restored\n  \
                  brokkr admin settle shop --recreate\n  \
                  brokkr admin settle cart --keep")]
pub struct Settle {
    /// Id or name
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub choice: SettleChoice,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// Delete the stored contents of a deleted stack
///
/// Without this command, they are deleted when their retention ends. The history stays, without contents. Backups of the
/// database still have the contents. This cannot be undone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr admin purge web --reason 'contained personal data'")]
pub struct Purge {
    /// Id, or name if no other stack has the name
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    /// Reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct SettleChoice {
    /// Publish the restored content as a new version
    #[arg(long)]
    pub publish_restored: bool,
    /// Create a stack that is missing in the database: without content, targeting the agents that have it
    #[arg(long)]
    pub recreate: bool,
    /// Delete a stack that is missing in the database: remove it from all agents that have it
    #[arg(long)]
    pub delete: bool,
    /// Make agents that have the stack without being targets of it explicit targets
    #[arg(long)]
    pub keep: bool,
    /// Remove the stack from agents that have it without being targets of it
    #[arg(long)]
    pub remove: bool,
}

impl SettleChoice {
    pub fn to_api(&self) -> Settlement {
        match self {
            Self { delete: true, .. } => Settlement::Delete,
            Self { recreate: true, .. } => Settlement::Recreate,
            Self { keep: true, .. } => Settlement::Keep,
            Self { remove: true, .. } => Settlement::Remove,
            Self { .. } => Settlement::PublishRestored,
        }
    }
}

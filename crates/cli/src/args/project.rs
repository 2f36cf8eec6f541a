//! `brokkr project …`

use brokkr_api::Name;
use brokkr_api::projects::PutQuotas;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// List the projects that you can see
    List,
    /// Show one project with its quotas and usage
    Show {
        /// Name
        #[arg(value_name = "PROJECT")]
        name: Name,
    },
    /// Create a project
    Create(ProjectQuotas),
    Set(SetProject),
    /// Delete a project that never had a stack
    ///
    /// It is refused while the project has valid tokens, webhooks or grants.
    Delete {
        /// Name
        #[arg(value_name = "PROJECT")]
        name: Name,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// Change a project
///
/// A quota below the current usage deletes nothing; it only blocks further use.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr project set default --restricted=false")]
pub struct SetProject {
    #[command(flatten)]
    pub quotas: ProjectQuotas,
    /// Restrict the project to its grants, or lift that (only for the project default without grants)
    ///
    /// The first grant of a project restricts it. Deleting its last grant does not lift the restriction.
    #[arg(long, value_name = "true|false")]
    pub restricted: Option<bool>,
    /// Confirm the number of (stack, agent) pairs that the restriction freezes
    ///
    /// Without it, such a change is refused, and the error message shows the number.
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct ProjectQuotas {
    /// Name
    #[arg(value_name = "PROJECT")]
    pub name: Name,
    /// Maximum number of stacks
    #[arg(long, value_name = "NUMBER")]
    pub stacks: Option<u64>,
    /// Maximum number of versions submitted per hour
    #[arg(long, value_name = "NUMBER")]
    pub submissions_per_hour: Option<u64>,
    /// Maximum size of all stored versions, in bytes
    #[arg(long, value_name = "NUMBER")]
    pub stored_bytes: Option<u64>,
    /// Maximum number of API tokens
    #[arg(long, value_name = "NUMBER")]
    pub tokens: Option<u64>,
    /// Maximum number of webhooks
    #[arg(long, value_name = "NUMBER")]
    pub webhooks: Option<u64>,
}

impl ProjectQuotas {
    pub fn allowed(&self) -> PutQuotas {
        PutQuotas {
            stacks: self.stacks,
            submissions_per_hour: self.submissions_per_hour,
            stored_bytes: self.stored_bytes,
            tokens: self.tokens,
            webhooks: self.webhooks,
        }
    }
}

//! `brokkr project …`

use brokkr_api::Name;
use brokkr_api::projects::PutQuotas;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// The projects that you may see
    List,
    /// One project, with its quotas and what it uses of them
    Show {
        /// By name
        #[arg(value_name = "PROJECT")]
        name: Name,
    },
    /// Make a project
    Create(ProjectQuotas),
    /// Change quotas of a project; a quota below what is used only allows no more
    Set(ProjectQuotas),
    /// Delete a project that never had a stack, and has no valid tokens, webhooks or grants
    Delete {
        /// By name
        #[arg(value_name = "PROJECT")]
        name: Name,
        /// Do not ask (for scripts)
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
pub struct ProjectQuotas {
    /// By name
    #[arg(value_name = "PROJECT")]
    pub name: Name,
    /// Living stacks, at most
    #[arg(long, value_name = "NUMBER")]
    pub stacks: Option<u64>,
    /// Versions submitted within an hour, at most
    #[arg(long, value_name = "NUMBER")]
    pub submissions_per_hour: Option<u64>,
    /// Bytes of stored versions, at most
    #[arg(long, value_name = "NUMBER")]
    pub stored_bytes: Option<u64>,
    /// API tokens, at most
    #[arg(long, value_name = "NUMBER")]
    pub tokens: Option<u64>,
    /// Webhooks, at most
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

//! `brokkr token …`

use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::tokens::Role;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// The API tokens of the project, with the revoked and expired ones of the last 30 days
    List,
    /// One API token
    Show {
        /// By id, or by a name that only one valid token has
        token: String,
    },
    Create(CreateToken),
    Rotate(RotateToken),
    /// Revoke an API token: it is refused everywhere within 5 seconds
    Revoke {
        /// By id, or by a name that only one valid token has
        token: String,
        /// Do not ask (for scripts)
        #[arg(short, long)]
        yes: bool,
    },
}

/// Make an API token in the project
///
/// The token alone is printed to stdout, once. Nobody can give more than they have: owners give the roles of a project,
/// admins any.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr token create ci-web --role deployer --ttl 30d > token")]
pub struct CreateToken {
    /// What it is for: it shows in histories and in the audit log
    pub name: Name,
    /// What it may do
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// How long it is valid, 366 days at most
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Make an API token in the place of another one
///
/// The new token alone is printed to stdout, once. It has the old one's name, role and lifetime. Until the overlap is over
/// both are good; the old one is never good for longer than it was before.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr token rotate ci-web --overlap 2h > token")]
pub struct RotateToken {
    /// By id, or by a name that only one valid token has
    pub token: String,
    /// For how long the old one is still good; a week at most
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = super::duration)]
    pub overlap: Duration,
    /// How long the new one is valid, if not as long as the old one; 366 days at most
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub ttl: Option<Duration>,
}

fn role() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["viewer", "deployer", "owner", "admin", "auditor"])
        .try_map(|text| text.parse::<Role>())
}

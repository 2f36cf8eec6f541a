//! `brokkr token …`

use std::time::Duration;

use brokkr_api::Name;
use brokkr_api::tokens::Role;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List API tokens, including those revoked or expired in the last 30 days
    List,
    /// Show one API token
    Show {
        /// Id, or name if only one valid token has it
        token: String,
    },
    Create(CreateToken),
    Rotate(RotateToken),
    /// Revoke an API token; it is refused within 5 seconds
    Revoke {
        /// Id, or name if only one valid token has it
        token: String,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// Create an API token in the project
///
/// Only the token is printed to stdout; it cannot be shown again. Owners can create tokens with the roles
/// viewer, deployer and owner, admins with any role.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr token create ci-web --role deployer --ttl 30d > token")]
pub struct CreateToken {
    /// Name; it is shown in the history of stacks and in the audit log
    pub name: Name,
    /// Role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// Validity, at most 366 days
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = super::duration)]
    pub ttl: Duration,
}

/// Replace an API token
///
/// Only the new token is printed to stdout; it cannot be shown again. It has the same name and role, and is
/// valid for as long as the old one originally was. The old token stays valid during the overlap, but never
/// beyond its own expiry.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr token rotate ci-web --overlap 2h > token")]
pub struct RotateToken {
    /// Id, or name if only one valid token has it
    pub token: String,
    /// Keep the old token valid for this time, at most 7 days
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = super::duration)]
    pub overlap: Duration,
    /// Validity of the new token, at most 366 days [default: the original lifetime of the old token]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub ttl: Option<Duration>,
}

fn role() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["viewer", "deployer", "owner", "admin", "auditor"])
        .try_map(|text| text.parse::<Role>())
}

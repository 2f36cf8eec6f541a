//! `brokkr audit …`

use brokkr_api::audit::AuditKind;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    List(AuditList),
    /// Show the newest entry of the project's hash chain
    ///
    /// Store it outside the broker, to prove later that no earlier entry was changed.
    Head,
    /// Verify the project's hash chain
    ///
    /// Shows the first invalid entry. The exit status is 1 if there is one.
    Verify,
}

/// List audit entries, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr audit list --actor ci-web --since 2h")]
pub struct AuditList {
    /// Show only entries of this actor: the name of a token, token:ID or agent:ID
    #[arg(long, value_name = "ACTOR")]
    pub actor: Option<String>,
    /// Show only requests to this route, such as 'PUT /api/v1/stacks/{stack}' or the same without the method
    #[arg(long, value_name = "ROUTE")]
    pub route: Option<String>,
    /// Show only changes, refused requests, or reads of Secrets
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub kind: Option<AuditKind>,
    /// Show only entries after this time, or within this duration
    #[arg(long, value_name = "TIME|DURATION", value_parser = super::time)]
    pub since: Option<Timestamp>,
    /// Show only entries before this time, or older than this duration
    #[arg(long, value_name = "TIME|DURATION", value_parser = super::time)]
    pub until: Option<Timestamp>,
    /// Show at most this many
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
}

fn kind() -> impl clap::builder::TypedValueParser<Value = AuditKind> {
    PossibleValuesParser::new(["change", "refused", "secrets_read"]).try_map(|text| text.parse::<AuditKind>())
}

//! `brokkr audit …`

use brokkr_api::audit::AuditKind;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use jiff::Timestamp;

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    List(AuditList),
    /// The newest link of the project's chain: kept elsewhere, it proves later that nothing before it was rewritten
    Head,
    /// Walk the project's chain, and name the first link that does not hold; exits with 1 if one does not
    Verify,
}

/// Who did what, from where, and what came of it; newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr audit list --who ci-web --since 2h")]
pub struct AuditList {
    /// By whom: the name of a token, token:ID or agent:ID
    #[arg(long, value_name = "WHO")]
    pub who: Option<String>,
    /// What: a route such as /api/v1/stacks/{stack}, or its method and route
    #[arg(long, value_name = "ROUTE")]
    pub what: Option<String>,
    /// Only changes, refused attempts, or readings of Secrets
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub kind: Option<AuditKind>,
    /// From this time on: a time, or how long ago
    #[arg(long, value_name = "TIME|DURATION", value_parser = super::time)]
    pub since: Option<Timestamp>,
    /// Before this time: a time, or how long ago
    #[arg(long, value_name = "TIME|DURATION", value_parser = super::time)]
    pub until: Option<Timestamp>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
}

fn kind() -> impl clap::builder::TypedValueParser<Value = AuditKind> {
    PossibleValuesParser::new(["change", "refused", "secrets_read"]).try_map(|text| text.parse::<AuditKind>())
}

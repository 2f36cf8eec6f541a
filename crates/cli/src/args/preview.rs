//! `brokkr preview`

use brokkr_api::{Name, Selector};

/// Whom a selector would reach, before it is used
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr preview 'env=prod,region in (eu,us)' --stack web")]
pub struct Preview {
    /// Such as env=prod; * is everybody
    pub selector: Selector,
    /// What this stack, by name or id, would gain, keep and lose if it had this selector alone
    #[arg(long, value_name = "STACK", value_parser = super::stack)]
    pub stack: Option<Name>,
    /// How many names to show at most
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = super::limit())]
    pub limit: u32,
}

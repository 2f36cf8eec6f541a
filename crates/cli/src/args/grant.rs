//! `brokkr grant …`

use brokkr_api::{Name, Selector};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum GrantCommand {
    /// The grants of all projects
    List,
    /// One grant
    Show {
        /// By name
        #[arg(value_name = "GRANT")]
        name: Name,
    },
    Set(SetGrant),
    Delete(DeleteGrant),
}

/// Grant agents to a project, or replace what a grant says
///
/// What a narrower grant no longer covers is frozen on the agents, not removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr grant set shop-prod --to-project shop -l env=prod --namespace shop --kind '*' \
                  --account shop/brokkr-shop"
)]
pub struct SetGrant {
    /// By name
    #[arg(value_name = "GRANT")]
    pub name: Name,
    /// The project that gets the agents
    #[arg(long, value_name = "PROJECT")]
    pub to_project: Name,
    /// Which agents, by labels; * is all of them
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Selector,
    /// A namespace that its stacks may use; * is all of them and what is in none. Can be repeated
    #[arg(short, long = "namespace", value_name = "NAMESPACE", required = true)]
    pub namespaces: Vec<String>,
    /// A kind that its stacks may use: Kind, Kind.group, *.group or *. Can be repeated
    #[arg(short, long = "kind", value_name = "KIND", required = true)]
    pub kinds: Vec<String>,
    /// The ServiceAccount that agents act as
    #[arg(long, value_name = "NAMESPACE/brokkr-NAME")]
    pub account: String,
    /// How many stacks on agents it no longer covers; the refusal without it says the number
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

/// Withdraw a grant: what agents hold by it stays as it is, frozen
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr grant delete shop-prod --yes --expect 12")]
pub struct DeleteGrant {
    /// By name
    #[arg(value_name = "GRANT")]
    pub name: Name,
    /// Do not ask (for scripts)
    #[arg(short, long)]
    pub yes: bool,
    /// How many stacks on agents it covers; the refusal without it says the number
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

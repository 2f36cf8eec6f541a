//! `brokkr grant …`

use brokkr_api::{Name, Selector};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum GrantCommand {
    /// List the grants of all projects
    List,
    /// Show one grant
    Show {
        /// Name
        #[arg(value_name = "GRANT")]
        name: Name,
    },
    Set(SetGrant),
    Delete(DeleteGrant),
}

/// Create or replace a grant, which lets a project use agents
///
/// Agents neither change nor delete the resources of stacks that a narrower grant no longer covers (the
/// stacks are frozen).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr grant set shop-prod --to-project shop -l env=prod --namespace shop --kind '*' \
                  --account shop/brokkr-shop"
)]
pub struct SetGrant {
    /// Name
    #[arg(value_name = "GRANT")]
    pub name: Name,
    /// Grant the agents to this project
    #[arg(long, value_name = "PROJECT")]
    pub to_project: Name,
    /// Grant agents with matching labels; * matches all agents
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Selector,
    /// Allow this namespace; * allows all namespaces and cluster-scoped objects. Can be repeated
    #[arg(short, long = "namespace", value_name = "NAMESPACE", required = true)]
    pub namespaces: Vec<String>,
    /// Allow this kind: Kind, Kind.group, *.group or *. Can be repeated
    #[arg(long = "kind", value_name = "KIND", required = true)]
    pub kinds: Vec<String>,
    /// ServiceAccount that agents use for the project's stacks
    #[arg(long, value_name = "NAMESPACE/brokkr-NAME")]
    pub account: String,
    /// Confirm the number of (stack, agent) pairs that are no longer covered by any grant
    ///
    /// Without it, such a change is refused, and the error message shows the number.
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

/// Delete a grant
///
/// Agents neither change nor delete the resources of stacks that no other grant covers (the stacks are
/// frozen).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr grant delete shop-prod --yes --expect 12")]
pub struct DeleteGrant {
    /// Name
    #[arg(value_name = "GRANT")]
    pub name: Name,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Confirm the number of (stack, agent) pairs that are no longer covered by any grant
    ///
    /// Without it, such a deletion is refused, and the error message shows the number.
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

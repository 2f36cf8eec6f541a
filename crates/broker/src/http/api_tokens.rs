//! API tokens: what people and machines come with.

pub mod create;
pub mod get;
pub mod list;
pub mod revoke;
pub mod rotate;

use brokkr_api::tokens::WhoAmI;

use crate::store::api_tokens::TokenScope;

/// The tokens that somebody may see: those of the project; the ones over the installation, whoever is over it.
fn scope(caller: &WhoAmI) -> TokenScope<'_> {
    TokenScope { project: &caller.project, over_installation: caller.role.is_over_installation() }
}

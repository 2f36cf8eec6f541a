//! Approvals of large prunes.

use brokkr_api::approvals::{ApprovePrune, PruneApproval};
use brokkr_api::page::Page;
use http::Method;

use crate::{Client, PageQuery, Result};

impl Client {
    /// Approves the prune of the newest version of a stack, given by name or id.
    pub async fn approve_prune(&self, stack: &str, approval: &ApprovePrune) -> Result<PruneApproval> {
        self.send(self.write(Method::POST, &["stacks", stack, "prune-approvals"]).json(approval)?)
            .await?
            .json()
    }

    /// Reads the approvals for the newest version of a stack.
    pub async fn prune_approvals(&self, stack: &str, page: &PageQuery) -> Result<Page<PruneApproval>> {
        self.page(&["stacks", stack, "prune-approvals"], &[], page).await
    }
}

//! Approvals of large prunes, which wait for them.

use brokkr_api::approvals::{ApprovePrune, PruneApproval};
use brokkr_api::page::Page;
use http::Method;

use crate::{Client, PageQuery, Result};

impl Client {
    /// Approves the prune of a stack's newest version. By name or id.
    pub async fn approve_prune(&self, stack: &str, approval: &ApprovePrune) -> Result<PruneApproval> {
        self.send(self.write(Method::POST, &["stacks", stack, "prune-approvals"]).json(approval)?)
            .await?
            .json()
    }

    /// What was approved for the newest version of a stack.
    pub async fn prune_approvals(&self, stack: &str, page: &PageQuery) -> Result<Page<PruneApproval>> {
        self.page(&["stacks", stack, "prune-approvals"], &[], page).await
    }
}

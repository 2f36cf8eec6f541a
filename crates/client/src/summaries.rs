//! Summaries over all agents: the progress of a stack, and errors grouped by reason.

use brokkr_api::page::Page;
use brokkr_api::status::{ErrorGroup, StackSummary};

use crate::{Client, PageQuery, Result};

impl Client {
    /// Reads the progress of a stack, given by name or id, on all agents.
    pub async fn stack_summary(&self, stack: &str) -> Result<StackSummary> {
        self.send(self.read(&["stacks", stack, "status", "summary"])).await?.json()
    }

    /// Reads the current errors of one stack, given by name or id, or of all stacks.
    pub async fn errors(&self, stack: Option<&str>, page: &PageQuery) -> Result<Page<ErrorGroup>> {
        let path = match stack {
            Some(stack) => vec!["stacks", stack, "errors"],
            None => vec!["errors"],
        };
        self.page(&path, &[], page).await
    }
}

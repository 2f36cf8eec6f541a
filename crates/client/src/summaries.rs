//! A stack over all agents in figures, and each mistake once.

use brokkr_api::page::Page;
use brokkr_api::status::{ErrorGroup, StackSummary};

use crate::{Client, PageQuery, Result};

impl Client {
    /// How many agents a stack reaches, and how far they are. By name or id.
    pub async fn stack_summary(&self, stack: &str) -> Result<StackSummary> {
        self.send(self.read(&["stacks", stack, "status", "summary"])).await?.json()
    }

    /// What is wrong now: with one stack, by name or id, or with all of them.
    pub async fn errors(&self, stack: Option<&str>, page: &PageQuery) -> Result<Page<ErrorGroup>> {
        let path = match stack {
            Some(stack) => vec!["stacks", stack, "errors"],
            None => vec!["errors"],
        };
        self.page(&path, &[], page).await
    }
}

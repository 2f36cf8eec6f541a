//! Stacks and their status. All methods take a name or an id.

use brokkr_api::Selector;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::stacks::{PutStack, Stack, StackTargets};
use brokkr_api::status::{StackStatus, State};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::exchange::expecting;
use crate::page::{PageQuery, counted};

/// Selects rows of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    pub state: Option<State>,
    /// A selector over the labels of agents.
    pub selector: Option<Selector>,
}

impl Client {
    /// Creates the stack, or changes the given fields.
    pub async fn put_stack(&self, stack: &str, put: &PutStack) -> Result<Stack, ClientError> {
        self.send(self.write(Method::PUT, &["stacks", stack]).json(put)?).await?.json()
    }

    pub async fn stack(&self, stack: &str) -> Result<Stack, ClientError> {
        self.send(self.read(&["stacks", stack])).await?.json()
    }

    pub async fn stacks(&self, page: &PageQuery) -> Result<Page<Stack>, ClientError> {
        self.send(self.read(&["stacks"]).query(&page.pairs())).await?.json()
    }

    pub async fn stacks_all(&self) -> Result<Vec<Stack>, ClientError> {
        self.read_on(|page| async move { self.stacks(&page).await }).await
    }

    /// Reads the first stacks by name.
    pub async fn stacks_up_to(&self, most: usize) -> Result<Page<Stack>, ClientError> {
        self.read_up_to(most, |page| async move { self.stacks(&page).await }).await
    }

    /// Reads the number of stacks.
    pub async fn stacks_counted(&self) -> Result<Option<u64>, ClientError> {
        let page: Page<Stack> = self.send(self.read(&["stacks"]).query(&counted())).await?.json()?;
        Ok(page.total)
    }

    /// Lists deleted stacks that agents still have, oldest first.
    pub async fn stacks_owed_all(&self) -> Result<Vec<Stack>, ClientError> {
        self.read_on(|page| async move {
            let pairs = page.with([Some(("deleted", "true".to_owned()))]);
            self.send(self.read(&["stacks"]).query(&pairs)).await?.json()
        })
        .await
    }

    /// Replaces all targets of the stack.
    pub async fn put_stack_targets(&self, stack: &str, targets: &StackTargets) -> Result<Stack, ClientError> {
        self.put_stack_targets_expecting(stack, targets, None).await
    }

    /// Like [`Client::put_stack_targets`], and confirms how many agents lose the stack.
    pub async fn put_stack_targets_expecting(
        &self,
        stack: &str,
        targets: &StackTargets,
        expect: Option<u64>,
    ) -> Result<Stack, ClientError> {
        let request = self.write(Method::PUT, &["stacks", stack, "targets"]).query(&expecting(expect));
        self.send(request.json(targets)?).await?.json()
    }

    /// Deletes the stack and returns the deletion marker; removals report its sequence id.
    pub async fn delete_stack(&self, stack: &str) -> Result<DeploymentObject, ClientError> {
        self.send(self.write(Method::DELETE, &["stacks", stack])).await?.json()
    }

    /// Deletes the stack and leaves its resources in the clusters, no longer managed.
    pub async fn delete_stack_keeping_resources(&self, stack: &str) -> Result<DeploymentObject, ClientError> {
        let keep = [("keep_resources", "true".to_owned())];
        self.send(self.write(Method::DELETE, &["stacks", stack]).query(&keep)).await?.json()
    }

    /// Reads the status of the stack on each agent that it targets or that has it.
    pub async fn stack_status(
        &self,
        stack: &str,
        page: &PageQuery,
    ) -> Result<Page<StackStatus>, ClientError> {
        self.send(self.read(&["stacks", stack, "status"]).query(&page.pairs())).await?.json()
    }

    pub async fn stack_status_all(&self, stack: &str) -> Result<Vec<StackStatus>, ClientError> {
        self.read_on(|page| async move { self.stack_status(stack, &page).await }).await
    }

    /// Reads the selected rows. A page may be short or empty although there are more.
    pub async fn stack_status_where(
        &self,
        stack: &str,
        query: &StatusQuery,
        page: &PageQuery,
    ) -> Result<Page<StackStatus>, ClientError> {
        let state = query.state.map(|state| ("state", state.to_string()));
        let selector = query.selector.as_ref().map(|selector| ("selector", selector.to_string()));
        let pairs = page.with([state, selector]);
        self.send(self.read(&["stacks", stack, "status"]).query(&pairs)).await?.json()
    }

    /// Reads the first rows by the agent's name.
    pub async fn stack_status_up_to(
        &self,
        stack: &str,
        query: &StatusQuery,
        most: usize,
    ) -> Result<Page<StackStatus>, ClientError> {
        self.read_up_to(most, |page| async move { self.stack_status_where(stack, query, &page).await }).await
    }
}

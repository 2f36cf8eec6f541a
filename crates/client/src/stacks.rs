//! Stacks: making, targeting, deleting, and where they stand. By name or id throughout.

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

/// Which rows of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    pub state: Option<State>,
    /// Over the labels of agents.
    pub selector: Option<Selector>,
}

impl Client {
    /// Creates the stack if there is none of that name; changes what is given, leaves the rest.
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

    /// The first of them, by name.
    pub async fn stacks_up_to(&self, most: usize) -> Result<Page<Stack>, ClientError> {
        self.read_up_to(most, |page| async move { self.stacks(&page).await }).await
    }

    /// How many there are.
    pub async fn stacks_counted(&self) -> Result<Option<u64>, ClientError> {
        let page: Page<Stack> = self.send(self.read(&["stacks"]).query(&counted())).await?.json()?;
        Ok(page.total)
    }

    /// Deleted stacks that agents still hold, oldest first.
    pub async fn stacks_owed_all(&self) -> Result<Vec<Stack>, ClientError> {
        self.read_on(|page| async move {
            let pairs = page.with([Some(("deleted", "true".to_owned()))]);
            self.send(self.read(&["stacks"]).query(&pairs)).await?.json()
        })
        .await
    }

    /// Replaces what the stack targets as a whole.
    pub async fn put_stack_targets(&self, stack: &str, targets: &StackTargets) -> Result<Stack, ClientError> {
        self.put_stack_targets_expecting(stack, targets, None).await
    }

    /// The same, with the number of agents that other selectors take the stack from.
    pub async fn put_stack_targets_expecting(
        &self,
        stack: &str,
        targets: &StackTargets,
        expect: Option<u64>,
    ) -> Result<Stack, ClientError> {
        let request = self.write(Method::PUT, &["stacks", stack, "targets"]).query(&expecting(expect));
        self.send(request.json(targets)?).await?.json()
    }

    /// Answers with the deletion marker, whose sequence id the removals carry.
    pub async fn delete_stack(&self, stack: &str) -> Result<DeploymentObject, ClientError> {
        self.send(self.write(Method::DELETE, &["stacks", stack])).await?.json()
    }

    /// Deletes the stack and leaves what it brought in the clusters, where it is nobody's from then on.
    pub async fn delete_stack_keeping_resources(&self, stack: &str) -> Result<DeploymentObject, ClientError> {
        let keep = [("keep_resources", "true".to_owned())];
        self.send(self.write(Method::DELETE, &["stacks", stack]).query(&keep)).await?.json()
    }

    /// The state of the stack on each agent that it targets or that holds it.
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

    /// The rows that are asked for. A page may be short, or empty, and still have more behind it.
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

    /// The first of them, by the agent's name.
    pub async fn stack_status_up_to(
        &self,
        stack: &str,
        query: &StatusQuery,
        most: usize,
    ) -> Result<Page<StackStatus>, ClientError> {
        self.read_up_to(most, |page| async move { self.stack_status_where(stack, query, &page).await }).await
    }
}

//! Stacks and their status. All methods take a name or an id.

use brokkr_api::Selector;
use brokkr_api::objects::{DeploymentObject, Rerun};
use brokkr_api::page::Page;
use brokkr_api::stacks::{PurgeStack, PurgedStack, PutStack, Stack, StackTargets};
use brokkr_api::status::{StackStatus, State};
use http::Method;

use crate::page::{expecting, given};
use crate::rollouts::RolloutOptions;
use crate::{Client, PageQuery, Result};

/// Selects rows of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    pub state: Option<State>,
    /// A selector over the labels of agents.
    pub selector: Option<Selector>,
}

impl Client {
    /// Creates the stack, or changes the given fields.
    pub async fn put_stack(&self, stack: &str, put: &PutStack) -> Result<Stack> {
        self.send(self.write(Method::PUT, &["stacks", stack]).json(put)?).await?.json()
    }

    /// Runs Jobs of a stack again, with a new version of its newest content.
    pub async fn rerun(&self, stack: &str, wanted: &Rerun) -> Result<DeploymentObject> {
        self.send(self.write(Method::POST, &["stacks", stack, "rerun"]).json(wanted)?).await?.json()
    }

    pub async fn stack(&self, stack: &str) -> Result<Stack> {
        self.send(self.read(&["stacks", stack])).await?.json()
    }

    pub async fn stacks(&self, page: &PageQuery) -> Result<Page<Stack>> {
        self.page(&["stacks"], &[], page).await
    }

    pub async fn stacks_all(&self) -> Result<Vec<Stack>> {
        self.all(&["stacks"], &[]).await
    }

    /// Reads the first stacks, ordered by name.
    pub async fn stacks_up_to(&self, most: usize) -> Result<Page<Stack>> {
        self.up_to(most, &["stacks"], &[]).await
    }

    /// Reads the number of stacks.
    pub async fn stacks_counted(&self) -> Result<Option<u64>> {
        self.total(&["stacks"], &[]).await
    }

    /// Lists deleted stacks that agents still have, oldest first.
    pub async fn stacks_owed_all(&self) -> Result<Vec<Stack>> {
        self.all(&["stacks"], &[("deleted", "true".to_owned())]).await
    }

    /// Deletes the stored contents of a deleted stack. Only admins may do this.
    pub async fn purge_stack(&self, stack: &str, reason: &str) -> Result<PurgedStack> {
        let wanted = PurgeStack { reason: reason.to_owned() };
        self.send(self.write(Method::POST, &["stacks", stack, "purge"]).json(&wanted)?).await?.json()
    }

    /// Replaces all targets of the stack.
    pub async fn put_stack_targets(&self, stack: &str, targets: &StackTargets) -> Result<Stack> {
        self.put_stack_targets_expecting(stack, targets, None).await
    }

    /// Like [`Client::put_stack_targets`], and confirms how many agents lose the stack.
    pub async fn put_stack_targets_expecting(
        &self,
        stack: &str,
        targets: &StackTargets,
        expect: Option<u64>,
    ) -> Result<Stack> {
        let request = self.write(Method::PUT, &["stacks", stack, "targets"]).query(&expecting(expect));
        self.send(request.json(targets)?).await?.json()
    }

    /// Deletes the stack and returns the deletion marker. Agents report the removal with its sequence id.
    pub async fn delete_stack(&self, stack: &str) -> Result<DeploymentObject> {
        self.send(self.write(Method::DELETE, &["stacks", stack])).await?.json()
    }

    /// Deletes the stack in this way. With `keep_resources`, its resources stay in the clusters, no longer managed.
    /// With `force`, its suspensions end.
    pub async fn delete_stack_as(
        &self,
        stack: &str,
        keep_resources: bool,
        force: bool,
        rollout: &RolloutOptions,
    ) -> Result<DeploymentObject> {
        let mut pairs = rollout.pairs();
        if force {
            pairs.push(("force", "true".to_owned()));
        }
        if keep_resources {
            pairs.push(("keep_resources", "true".to_owned()));
        }
        self.send(self.write(Method::DELETE, &["stacks", stack]).query(&pairs)).await?.json()
    }

    /// Reads the status of the stack on each agent that it targets or that has it.
    pub async fn stack_status(&self, stack: &str, page: &PageQuery) -> Result<Page<StackStatus>> {
        self.page(&["stacks", stack, "status"], &[], page).await
    }

    pub async fn stack_status_all(&self, stack: &str) -> Result<Vec<StackStatus>> {
        self.all(&["stacks", stack, "status"], &[]).await
    }

    /// Reads the first selected rows, ordered by the agent's name.
    pub async fn stack_status_up_to(
        &self,
        stack: &str,
        query: &StatusQuery,
        most: usize,
    ) -> Result<Page<StackStatus>> {
        let state = query.state.map(|state| ("state", state.to_string()));
        let selector = query.selector.as_ref().map(|selector| ("selector", selector.to_string()));
        self.up_to(most, &["stacks", stack, "status"], &given([state, selector])).await
    }
}

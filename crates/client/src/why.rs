//! Why something is not as it should be, as the broker tells it. By name or id throughout.

use brokkr_api::page::Page;
use brokkr_api::why::{AgentWhy, SequenceHops, StackWhy};

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    /// Why a stack is not as it should be on an agent, or that it is.
    pub async fn stack_why(&self, stack: &str, agent: &str) -> Result<StackWhy, ClientError> {
        self.send(self.read(&["stacks", stack, "agents", agent, "why"])).await?.json()
    }

    /// Why an agent is not as it should be, with its stacks that are stuck.
    pub async fn agent_why(&self, agent: &str) -> Result<AgentWhy, ClientError> {
        self.send(self.read(&["agents", agent, "why"])).await?.json()
    }

    /// What happened to each deployment object of a stack on an agent, newest first.
    pub async fn stack_hops(
        &self,
        stack: &str,
        agent: &str,
        page: &PageQuery,
    ) -> Result<Page<SequenceHops>, ClientError> {
        let path = ["stacks", stack, "agents", agent, "hops"];
        self.send(self.read(&path).query(&page.pairs())).await?.json()
    }
}

//! Why something is not as it should be, as the broker tells it. By name or id throughout.

use brokkr_api::why::{AgentWhy, StackWhy};

use crate::{Client, Result};

impl Client {
    /// Why a stack is not as it should be on an agent, or that it is.
    pub async fn stack_why(&self, stack: &str, agent: &str) -> Result<StackWhy> {
        self.send(self.read(&["stacks", stack, "agents", agent, "why"])).await?.json()
    }

    /// Why an agent is not as it should be, with its stacks that are stuck.
    pub async fn agent_why(&self, agent: &str) -> Result<AgentWhy> {
        self.send(self.read(&["agents", agent, "why"])).await?.json()
    }
}

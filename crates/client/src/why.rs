//! Explanations of the state of stacks and agents. All methods take names or ids.

use brokkr_api::why::{AgentWhy, StackWhy};

use crate::{Client, Result};

impl Client {
    /// Explains the state of a stack on an agent.
    pub async fn stack_why(&self, stack: &str, agent: &str) -> Result<StackWhy> {
        self.send(self.read(&["stacks", stack, "agents", agent, "why"])).await?.json()
    }

    /// Explains the state of an agent and of its stacks with problems.
    pub async fn agent_why(&self, agent: &str) -> Result<AgentWhy> {
        self.send(self.read(&["agents", agent, "why"])).await?.json()
    }
}

//! Health rules: how agents read the health of custom kinds.

use brokkr_api::AgentId;
use brokkr_api::health_rules::{HealthRules, LONGEST_RULES};
use brokkr_api::ids::Checksum;
use bytes::Bytes;
use http::Method;

use crate::{Client, Result};

impl Client {
    /// Reads the health rules of a stack, given by name or id, or of the installation.
    pub async fn health_rules(&self, stack: Option<&str>) -> Result<HealthRules> {
        self.send(self.read(&path(stack))).await?.json()
    }

    /// Sets the health rules of a stack, or of the installation. An empty list removes them.
    pub async fn put_health_rules(&self, stack: Option<&str>, rules: &HealthRules) -> Result<HealthRules> {
        self.send(self.write(Method::PUT, &path(stack)).json(rules)?).await?.json()
    }

    /// Fetches the rules that the target state of an agent names. The caller compares their checksum.
    pub async fn agent_health_rules(&self, agent: AgentId, checksum: Checksum) -> Result<Bytes> {
        let path = ["agents", &agent.to_string(), "health-rules", &checksum.to_string()];
        let mut call = self.call(Method::GET, &path).accept("application/json");
        call.limit = LONGEST_RULES;
        Ok(self.send(call).await?.body)
    }
}

fn path(stack: Option<&str>) -> Vec<&str> {
    match stack {
        Some(stack) => vec!["stacks", stack, "health-rules"],
        None => vec!["health-rules"],
    }
}

//! Upgrades of agents, for admins.

use brokkr_api::UpgradeId;
use brokkr_api::page::Page;
use brokkr_api::rollouts::CommandRollout;
use brokkr_api::upgrades::{AgentUpgrade, AgentUpgradeStatus, NewAgentUpgrade};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// Offers an image to agents.
    pub async fn begin_agent_upgrade(&self, new: &NewAgentUpgrade) -> Result<AgentUpgrade> {
        self.send(self.write(Method::POST, &["agent-upgrades"]).json(new)?).await?.json()
    }

    /// Reads the newest upgrades, newest first.
    pub async fn agent_upgrades(&self, most: usize) -> Result<Page<AgentUpgrade>> {
        self.up_to(most, &["agent-upgrades"], &[]).await
    }

    pub async fn agent_upgrade(&self, id: UpgradeId) -> Result<AgentUpgrade> {
        self.send(self.read(&["agent-upgrades", &id.to_string()])).await?.json()
    }

    /// Reads how far the first agents of an upgrade are, ordered by name.
    pub async fn agent_upgrade_statuses(
        &self,
        id: UpgradeId,
        most: usize,
    ) -> Result<Page<AgentUpgradeStatus>> {
        self.up_to(most, &["agent-upgrades", &id.to_string(), "agents"], &[]).await
    }

    /// Pauses, resumes, promotes, skips, approves, denies, stops or aborts an upgrade.
    pub async fn command_agent_upgrade(
        &self,
        id: UpgradeId,
        command: &str,
        request: &CommandRollout,
    ) -> Result<AgentUpgrade> {
        let call = self.write(Method::POST, &["agent-upgrades", &id.to_string(), command]);
        self.send(call.json(request)?).await?.json()
    }
}

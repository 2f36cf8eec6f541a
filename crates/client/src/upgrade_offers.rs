//! Upgrades as an agent sees them: what it is offered, and how far it has come.

use brokkr_api::AgentId;
use brokkr_api::upgrades::{UpgradeOffer, UpgradeReport};
use http::{Method, StatusCode};

use crate::{Client, ClientError, Result};

impl Client {
    /// Reads the upgrade that the agent is offered, if there is one. Opens no session, and says nothing about the presence of the
    /// agent.
    pub async fn upgrade_offer(&self, agent: AgentId) -> Result<Option<UpgradeOffer>> {
        match self.send(self.read(&["agents", &agent.to_string(), "upgrade"])).await {
            Ok(answer) if answer.status == StatusCode::NO_CONTENT => Ok(None),
            Ok(answer) => answer.json().map(Some),
            Err(ClientError::Problem { problem, .. }) if problem.status == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reports how far the agent has come. Can be repeated.
    pub async fn report_upgrade(&self, agent: AgentId, report: &UpgradeReport) -> Result<()> {
        let path = ["agents", &agent.to_string(), "upgrade"];
        self.send(self.write(Method::POST, &path).json(report)?).await.map(|_| ())
    }
}

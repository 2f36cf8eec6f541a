//! What agents report.

use brokkr_api::AgentId;
use brokkr_api::report::{ReportBatch, ReportReceipt};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;

impl Client {
    /// At most [`brokkr_api::report::BATCH`] at once. What the receipt names is durable and can be forgotten.
    pub async fn report(&self, agent: AgentId, batch: &ReportBatch) -> Result<ReportReceipt, ClientError> {
        let path = ["agents", &agent.to_string(), "reports"];
        self.send(self.write(Method::POST, &path).json(batch)?).await?.json()
    }
}

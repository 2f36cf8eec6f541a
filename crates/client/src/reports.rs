//! Reports of agents.

use brokkr_api::AgentId;
use brokkr_api::protocol::Capability;
use brokkr_api::report::{Report, ReportBatch, ReportReceipt};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// Sends at most [`brokkr_api::report::BATCH`] reports. The caller can drop every report that the receipt
    /// names.
    pub async fn report(&self, agent: AgentId, batch: &ReportBatch) -> Result<ReportReceipt> {
        let path = ["agents", &agent.to_string(), "reports"];
        let write = self.write(Method::POST, &path);
        let call = if self.broker_capabilities().has(Capability::ReasonDetails) {
            write.json(batch)?
        } else {
            write.json(&ReportBatch { reports: batch.reports.iter().map(without_details).collect() })?
        };
        self.send(call).await?.json()
    }
}

/// Returns the report for a broker that stores no details. The id of a report does not depend on its details.
fn without_details(report: &Report) -> Report {
    let mut report = report.clone();
    report.reason = report.reason.without_details();
    for note in &mut report.objects {
        note.reason = note.reason.without_details();
    }
    for condition in &mut report.conditions {
        condition.reason = condition.reason.without_details();
    }
    report
}

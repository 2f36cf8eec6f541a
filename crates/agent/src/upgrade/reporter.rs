//! Reports to the broker how far an upgrade has come.

use std::time::Duration;

use brokkr_api::upgrades::{LONGEST_MESSAGE, UpgradeReason, UpgradeReport, UpgradeStep};
use brokkr_api::{AgentId, UpgradeId};
use brokkr_client::{Client as Broker, ClientError};

use crate::backoff::Backoff;
use crate::clock;
use crate::version::VERSION;

/// The pauses between the attempts at everything that an upgrade waits for.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));

#[derive(Clone)]
pub struct Reporter {
    pub broker: Broker,
    pub agent: AgentId,
}

/// Returns the report of this process, now.
#[must_use]
pub fn report(id: UpgradeId, step: UpgradeStep, reason: Option<UpgradeReason>) -> UpgradeReport {
    UpgradeReport { id, step, version: VERSION.to_owned(), reason, at: clock::now() }
}

/// Returns a message of at most the length that the broker accepts.
#[must_use]
pub fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

impl Reporter {
    /// Sends a report once. Succeeds also if the broker will never accept it, because then nothing is gained by sending it again.
    pub async fn send(&self, report: &UpgradeReport) -> Result<(), ClientError> {
        match self.broker.report_upgrade(self.agent, report).await {
            Err(error) if is_final(&error) => {
                tracing::error!(%error, step = %report.step, "the broker refused the report of an upgrade; dropping it");
                Ok(())
            }
            sent => sent,
        }
    }

    /// Sends a report until the broker has received it.
    pub async fn send_until_received(&self, report: &UpgradeReport) {
        let mut failures = 0;
        while let Err(error) = self.send(report).await {
            failures += 1;
            let pause = BACKOFF.jittered(failures).max(error.retry_after().unwrap_or_default());
            tracing::warn!(%error, step = %report.step, "failed to report an upgrade; retrying in {pause:?}");
            tokio::time::sleep(pause).await;
        }
    }
}

/// Returns whether the broker refused the report itself. If it refused the credential, the report is kept.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem { problem, .. } if matches!(problem.status, 400 | 404 | 409 | 422))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("ä".repeat(LONGEST_MESSAGE));
        assert_eq!(long.chars().count(), LONGEST_MESSAGE / 2);
    }
}

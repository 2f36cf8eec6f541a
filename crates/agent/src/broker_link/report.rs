//! Sends reports until the broker has accepted or refused them. Pending reports are also stored in the records, so a
//! crash loses none.

use std::collections::BTreeMap;
use std::time::Duration;

use brokkr_api::report::{BATCH, BATCH_BYTES, Report, ReportBatch};
use brokkr_api::{AgentId, ErrorCode, EventId};
use brokkr_client::{Client as Broker, ClientError};
use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::metrics::Metrics;

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Sends reports in batches, and sends the ids of accepted or refused ones to `settled`.
pub async fn run(
    broker: Broker,
    agent: AgentId,
    mut incoming: mpsc::UnboundedReceiver<Vec<Report>>,
    settled: mpsc::UnboundedSender<Vec<EventId>>,
    metrics: Metrics,
) {
    let mut waiting: BTreeMap<EventId, Report> = BTreeMap::new();
    let (mut attempt, mut batch) = (0u32, BATCH);
    while let Some(first) = incoming.recv().await {
        waiting.extend(first.into_iter().map(|report| (report.id, report)));
        while !waiting.is_empty() {
            while let Ok(more) = incoming.try_recv() {
                waiting.extend(more.into_iter().map(|report| (report.id, report)));
            }
            metrics.reports_waiting(waiting.len());
            let reports = oldest(&waiting, batch);
            let sent: Vec<EventId> = reports.iter().map(|report| report.id).collect();
            let done = match broker.report(agent, &ReportBatch { reports }).await {
                Ok(receipt) => {
                    (attempt, batch) = (0, BATCH);
                    if receipt.accepted.len() + receipt.duplicates.len() + receipt.refused.len() == 0 {
                        tracing::warn!("the broker acknowledged none of a batch of reports; retrying");
                        tokio::time::sleep(pause(1, None)).await;
                    }
                    if !receipt.refused.is_empty() {
                        tracing::error!(reports = ?receipt.refused, "the broker refused reports; dropping them");
                    }
                    receipt.accepted.into_iter().chain(receipt.duplicates).chain(receipt.refused).collect()
                }
                // One report that the broker will never accept must not block the others.
                Err(error) if is_refusal(&error) && sent.len() > 1 => {
                    tracing::warn!(%error, reports = sent.len(), "the broker refused a batch of reports; retrying with smaller batches");
                    batch = sent.len() / 2;
                    Vec::new()
                }
                Err(error) if is_refusal(&error) => {
                    tracing::error!(%error, report = %sent[0], "the broker refused a report; dropping it");
                    batch = BATCH;
                    sent
                }
                Err(error) => {
                    attempt += 1;
                    tracing::warn!(%error, reports = waiting.len(), attempt, "failed to send reports; retrying");
                    tokio::time::sleep(pause(attempt, error.retry_after())).await;
                    Vec::new()
                }
            };
            for id in &done {
                waiting.remove(id);
            }
            metrics.reports_waiting(waiting.len());
            if !done.is_empty() && settled.send(done).is_err() {
                return;
            }
        }
    }
}

/// Returns whether the broker refused the reports themselves. If it refused the credential, they are kept.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::BRK2003 | ErrorCode::BRK2006))
}

/// Returns the oldest reports that fit into one batch, at least one.
fn oldest(waiting: &BTreeMap<EventId, Report>, count: usize) -> Vec<Report> {
    let mut reports: Vec<&Report> = waiting.values().collect();
    reports.sort_by_key(|report| report.at);
    // The object around the reports.
    let mut bytes = 64;
    let fits = |(number, report): &(usize, &Report)| {
        // A report that cannot be serialized cannot be sent either; the client reports the error.
        bytes += serde_json::to_vec(report).map_or(0, |json| json.len() + 1);
        *number == 0 || bytes <= BATCH_BYTES
    };
    let reports = reports.into_iter().take(count.max(1)).enumerate().take_while(fits);
    reports.map(|(_, report)| report.clone()).collect()
}

fn pause(attempt: u32, at_least: Option<Duration>) -> Duration {
    at_least.unwrap_or_default().max(BACKOFF.delay(attempt))
}

#[cfg(test)]
mod tests {
    use brokkr_api::reason::Message;
    use jiff::Timestamp;

    use super::*;

    fn reports(count: i64, message: usize) -> BTreeMap<EventId, Report> {
        let report = |second| {
            let mut report: Report = serde_json::from_value(serde_json::json!({
                "id": EventId::generate(), "stack_id": uuid::Uuid::nil(), "sequence_id": 1, "transition": "healthy",
                "at": Timestamp::from_second(second).unwrap(),
            }))
            .unwrap();
            report.message = Message::new("x".repeat(message));
            (report.id, report)
        };
        (0..count).map(report).collect()
    }

    #[test]
    fn a_batch_has_the_oldest_reports_and_stays_below_the_size_that_the_broker_accepts() {
        assert_eq!(oldest(&reports(600, 10), BATCH).len(), BATCH);
        let batch = oldest(&reports(500, 10_000), BATCH);
        let times: Vec<i64> = batch.iter().map(|report| report.at.as_second()).collect();
        assert_eq!(times, (0..i64::try_from(batch.len()).unwrap()).collect::<Vec<_>>());
        let size = serde_json::to_vec(&ReportBatch { reports: batch }).unwrap().len();
        assert!((BATCH_BYTES - 20_000..=BATCH_BYTES).contains(&size), "{size}");
        assert_eq!(oldest(&reports(2, 2 * BATCH_BYTES), BATCH).len(), 1, "the broker decides about it");
    }
}

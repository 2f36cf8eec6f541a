//! Sends reports until the broker has accepted or refused them. Pending reports are also stored in the records, so a
//! crash loses none.

use std::collections::BTreeMap;
use std::time::Duration;

use brokkr_api::report::{BATCH, Report, ReportBatch};
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

fn oldest(waiting: &BTreeMap<EventId, Report>, count: usize) -> Vec<Report> {
    let mut reports: Vec<&Report> = waiting.values().collect();
    reports.sort_by_key(|report| report.at);
    reports.into_iter().take(count.max(1)).cloned().collect()
}

fn pause(attempt: u32, at_least: Option<Duration>) -> Duration {
    at_least.unwrap_or_default().max(BACKOFF.delay(attempt))
}

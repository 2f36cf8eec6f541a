//! Sends reports until the broker has acknowledged them. What is waiting here is also in the records,
//! so a crash loses nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use brokkr_api::report::{BATCH, Report, ReportBatch};
use brokkr_api::{AgentId, EventId};
use brokkr_client::Client as Broker;
use tokio::sync::mpsc;

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Takes reports in, sends them in batches, and says which are durable.
pub async fn run(
    broker: Broker,
    agent: AgentId,
    mut incoming: mpsc::UnboundedReceiver<Vec<Report>>,
    acknowledged: mpsc::UnboundedSender<Vec<EventId>>,
) {
    let mut waiting: BTreeMap<EventId, Report> = BTreeMap::new();
    let mut attempt = 0u32;
    while let Some(first) = incoming.recv().await {
        waiting.extend(first.into_iter().map(|report| (report.id, report)));
        while !waiting.is_empty() {
            while let Ok(more) = incoming.try_recv() {
                waiting.extend(more.into_iter().map(|report| (report.id, report)));
            }
            let mut reports: Vec<Report> = waiting.values().cloned().collect();
            reports.sort_by_key(|report| report.at);
            reports.truncate(BATCH);
            match broker.report(agent, &ReportBatch { reports }).await {
                Ok(receipt) => {
                    attempt = 0;
                    let durable: Vec<EventId> =
                        receipt.accepted.into_iter().chain(receipt.duplicates).collect();
                    for id in &durable {
                        waiting.remove(id);
                    }
                    if acknowledged.send(durable).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    attempt += 1;
                    tracing::warn!(%error, reports = waiting.len(), attempt, "reports not delivered, kept");
                    let pause = error.retry_after().unwrap_or_default().max(
                        Duration::from_millis(500).saturating_mul(1 << attempt.min(6)).min(LONGEST_PAUSE),
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

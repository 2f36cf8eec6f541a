//! Writes Kubernetes Events about the records of stacks, so that `kubectl describe stacks.brokkr.io` tells what happened.
//!
//! One event for each report, so the steady state writes none. The name of an event is derived from the id of its report: a
//! report that is made again after a crash is no second event. Events are for people and may be lost: nothing waits for
//! them, a failed one is not retried, and a stack that reports very often loses some.
//!
//! | file      | contents                                    |
//! |-----------|---------------------------------------------|
//! | `event`   | what an event says: pure                    |
//! | `limit`   | how many events a stack may have: pure      |

mod event;
mod limit;

use std::time::{Duration, Instant};

use brokkr_api::AgentId;
use brokkr_api::report::Report;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;

use crate::inventory::wire::{api_resource, other_name, record_name};
use crate::own_objects::{RequestError, with_deadline};
use event::NAMESPACE;
use limit::Limits;

/// Events that wait to be written. More are dropped.
pub const WAITING: usize = 256;
/// After a refusal, none is tried for this long.
const AFTER_REFUSAL: Duration = Duration::from_secs(600);

/// A report of a stack, by the name of the stack.
pub type Reported = (String, Report);

/// Writes events until the channel ends.
pub async fn run(client: Client, agent: AgentId, mut incoming: mpsc::Receiver<Reported>) {
    let records: Api<DynamicObject> = Api::all_with(client.clone(), &api_resource());
    let events: Api<Event> = Api::namespaced(client, NAMESPACE);
    let (mut limits, mut refused_at) = (Limits::default(), None::<Instant>);
    while let Some((stack, report)) = incoming.recv().await {
        let now = Instant::now();
        if refused_at.is_some_and(|at| now.duration_since(at) < AFTER_REFUSAL)
            || !limits.allow(report.stack_id, report.at, now)
        {
            continue;
        }
        match write(&records, &events, agent, &stack, &report).await {
            Ok(()) => refused_at = None,
            // The report was written before.
            Err(error) if error.is(409) => {}
            Err(error) if error.is(403) => {
                tracing::info!(
                    %error, namespace = NAMESPACE,
                    "the agent may not write events about its records; will try again in ten minutes"
                );
                refused_at = Some(now);
            }
            Err(error) => tracing::debug!(%error, stack.id = %report.stack_id, "failed to write an event"),
        }
    }
}

async fn write(
    records: &Api<DynamicObject>,
    events: &Api<Event>,
    agent: AgentId,
    stack: &str,
    report: &Report,
) -> Result<(), RequestError> {
    let name = record_name(stack, report.stack_id);
    for name in [other_name(&name), name] {
        let Some(record) = with_deadline(records.get_metadata_opt(&name)).await? else { continue };
        let Some(uid) = record.uid() else { continue };
        let event = event::event(agent, &name, uid, report);
        return with_deadline(events.create(&PostParams::default(), &event)).await.map(|_| ());
    }
    // The record is gone with the stack.
    Ok(())
}

//! An agent reports transitions, in batches; each becomes one event, however often it is sent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::report::{BATCH, NOTES, Report, ReportBatch, ReportReceipt, Transition};
use brokkr_api::{AgentId, EventId, StackId};
use http::StatusCode;
use jiff::Timestamp;

use crate::broker::Broker;
use crate::domain::envelope::wanted;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::events::event_insert_on_conn;
use crate::store::stack_status::stack_status_store_on_conn;

const LONGEST_TEXT: usize = 4096;

/// Report transitions. What the receipt names is durable: the agent forgets it.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/reports", tag = "agents", request_body = ReportBatch,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = ReportReceipt)))]
pub async fn report(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let batch: ReportBatch = change.json()?;
    let caller = change.caller()?;
    let (project, agent) = (caller.project(), caller.agent()?.id);
    let mut reports = batch.reports;
    check(agent, &reports)?;
    fill_hops(&broker, agent, &mut reports, Timestamp::now());
    // Twice in one batch is once.
    let mut seen = HashSet::new();
    reports.retain(|report| seen.insert(report.id));
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let new = event_insert_on_conn(write.conn(), project, agent, &reports).await?;
    let newest = newest_of_each_stack(reports.iter().filter(|report| new.contains(&report.id)));
    if !newest.is_empty() {
        stack_status_store_on_conn(write.conn(), project, agent, &newest).await?;
    }
    let (accepted, duplicates): (Vec<EventId>, Vec<EventId>) =
        reports.iter().map(|report| report.id).partition(|id| new.contains(id));
    write.finish(StatusCode::OK, &ReportReceipt { accepted, duplicates }).await
}

fn check(agent: AgentId, reports: &[Report]) -> Result<(), ApiError> {
    if reports.len() > BATCH {
        return Err(ApiError::unreadable(format!("a batch holds at most {BATCH} reports")));
    }
    for report in reports {
        if report.derived_id(agent) != report.id {
            let detail = format!("the id {} is not the one derived from the report", report.id);
            return Err(ApiError::unreadable(detail));
        }
        let long = |text: &str| text.len() > LONGEST_TEXT || text.contains('\0');
        let bad_note =
            report.objects.iter().any(|note| long(&note.object) || long(&note.reason) || long(&note.message));
        if report.objects.len() > NOTES || long(&report.reason) || long(&report.message) || bad_note {
            let detail = format!("the report {} is longer than allowed", report.id);
            return Err(ApiError::unreadable(detail));
        }
    }
    Ok(())
}

/// The broker's own hops: what it knows better than the agent.
fn fill_hops(broker: &Broker, agent: AgentId, reports: &mut [Report], now: Timestamp) {
    let picture = broker.index.picture();
    let agent = picture.agent(agent);
    for report in reports {
        report.hops.reported = Some(now);
        let known = agent
            .zip(picture.stack(report.stack_id))
            .and_then(|(agent, stack)| wanted(agent, stack))
            .filter(|wanted| wanted.sequence_id() == report.sequence_id);
        if let Some(wanted) = known {
            report.hops.published = Some(wanted.object.published_at);
            // The agent may have seen it before a later target was added; the first counts.
            report.hops.targeted.get_or_insert(wanted.targeted_at);
            report.hops.released.get_or_insert(wanted.released_at);
        }
    }
}

/// The last word about each stack. A repair is an event, and changes no state.
fn newest_of_each_stack<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<&'a Report> {
    let mut newest: HashMap<StackId, &Report> = HashMap::new();
    for report in reports.filter(|report| report.transition != Transition::Repaired) {
        let last = newest.entry(report.stack_id).or_insert(report);
        if (report.sequence_id, report.at) >= (last.sequence_id, last.at) {
            *last = report;
        }
    }
    newest.into_values().collect()
}

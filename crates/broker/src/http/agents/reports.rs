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
use crate::store::stack_status::{stack_status_store_conditions_on_conn, stack_status_store_on_conn};

const LONGEST_TEXT: usize = 4096;
/// An agent says six. One that is broken must not fill the database.
const CONDITIONS: usize = 20;

/// Report transitions. What the receipt names is durable: the agent forgets it.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/reports", tag = "agents", request_body = ReportBatch,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = ReportReceipt)))]
pub async fn report(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let batch: ReportBatch = change.json()?;
    let caller = change.caller()?;
    let (project, agent) = (caller.project(), caller.agent()?.id);
    if batch.reports.len() > BATCH {
        return Err(ApiError::unreadable(format!("a batch holds at most {BATCH} reports")));
    }
    let (mut reports, refused) = sift(agent, batch.reports);
    if !refused.is_empty() {
        tracing::warn!(%agent, count = refused.len(), "reports whose id does not follow from them are refused");
    }
    fill_hops(&broker, agent, &mut reports, Timestamp::now());
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let new = event_insert_on_conn(write.conn(), project, agent, &reports).await?;
    let new_ones = || reports.iter().filter(|report| new.contains(&report.id));
    // A repair is an event, and changes no state; but it may tell of a fight.
    let is_repair = |report: &&Report| report.transition == Transition::Repaired;
    let newest = newest_of_each_stack(new_ones().filter(|report| !is_repair(report)));
    if !newest.is_empty() {
        stack_status_store_on_conn(write.conn(), project, agent, &newest).await?;
    }
    let repairs = newest_of_each_stack(new_ones().filter(is_repair));
    if !repairs.is_empty() {
        stack_status_store_conditions_on_conn(write.conn(), project, agent, &repairs).await?;
    }
    let (accepted, duplicates): (Vec<EventId>, Vec<EventId>) =
        reports.iter().map(|report| report.id).partition(|id| new.contains(id));
    write.finish(StatusCode::OK, &ReportReceipt { accepted, duplicates, refused }).await
}

/// What can be stored of the batch, and the ids of what cannot. One report must not hold up the others:
/// the agent would send the same batch for ever.
fn sift(agent: AgentId, reports: Vec<Report>) -> (Vec<Report>, Vec<EventId>) {
    let (mut kept, mut refused) = (Vec::with_capacity(reports.len()), Vec::new());
    // Twice in one batch is once.
    let mut seen = HashSet::new();
    for mut report in reports {
        if report.derived_id(agent) != report.id {
            refused.push(report.id);
        } else if seen.insert(report.id) {
            trim(&mut report);
            kept.push(report);
        }
    }
    (kept, refused)
}

/// Shortens what is too long, names a gap, and leaves out what PostgreSQL cannot store. The id does not depend on texts.
fn trim(report: &mut Report) {
    clip(&mut report.reason);
    if report.dropped > 0 {
        let gap =
            format!("(gap: {} earlier reports of this stack were dropped by the agent)", report.dropped);
        report.message = if report.message.is_empty() { gap } else { format!("{} {gap}", report.message) };
    }
    clip(&mut report.message);
    report.objects.truncate(NOTES);
    for note in &mut report.objects {
        clip(&mut note.object);
        clip(&mut note.reason);
        clip(&mut note.message);
    }
    report.conditions.truncate(CONDITIONS);
    for condition in &mut report.conditions {
        clip(&mut condition.reason);
        clip(&mut condition.message);
    }
}

fn clip(text: &mut String) {
    text.retain(|character| character != '\0');
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
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

/// The last word about each stack.
fn newest_of_each_stack<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<&'a Report> {
    let mut newest: HashMap<StackId, &Report> = HashMap::new();
    for report in reports {
        let last = newest.entry(report.stack_id).or_insert(report);
        if (report.sequence_id, report.at) >= (last.sequence_id, last.at) {
            *last = report;
        }
    }
    newest.into_values().collect()
}

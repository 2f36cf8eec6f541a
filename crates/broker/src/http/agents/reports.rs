//! Reports of an agent, in batches. Each becomes one event, however often it is sent.

use std::collections::{BTreeSet, HashMap};

use axum::extract::State;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::report::{BATCH, Report, ReportBatch, ReportReceipt, Transition};
use brokkr_api::{AgentId, EventId, StackId};
use http::StatusCode;
use jiff::Timestamp;

use crate::domain::envelope::desired;
use crate::domain::filing::{Filed, newest_of_each_stack, sift};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::store::events::{event_insert_on_conn, event_lock_agent_on_conn};
use crate::store::reasons::reason_insert_on_conn;
use crate::store::stack_status::{stack_status_store_conditions_on_conn, stack_status_store_on_conn};
use crate::store::stacks::stack_projects;

/// Report transitions.
///
/// Reports named in the receipt are durable: the agent does not send them again.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/reports", tag = "agents", request_body = ReportBatch,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = ReportReceipt)))]
pub async fn report(State(broker): BrokerState, change: Change) -> ApiResult {
    let batch: ReportBatch = change.json()?;
    let agent = change.caller()?.agent()?.id;
    if batch.reports.len() > BATCH {
        return Err(ApiError::invalid_request(format!("a batch can have at most {BATCH} reports")));
    }
    let (mut reports, refused) = sift(agent, batch.reports);
    if !refused.is_empty() {
        tracing::warn!(
            agent_id = %agent,
            count = refused.len(),
            "refused reports: their ids do not match their content, or their transitions are malformed"
        );
    }
    fill_hops(&broker, agent, &mut reports, Timestamp::now());
    let filed = file(&broker, reports).await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        event_lock_agent_on_conn(write.conn(), agent).await?;
        let new = event_insert_on_conn(write.conn(), agent, &filed).await?;
        let new_ones = || filed.iter().filter(|filed| new.contains(&filed.report.id));
        // A repair is an event and changes no state, but its conditions may name a field that another manager
        // changes.
        let is_repair = |filed: &&Filed| filed.report.transition == Transition::Repaired;
        let newest = newest_of_each_stack(new_ones().filter(|filed| !is_repair(filed)));
        if !newest.is_empty() {
            reason_insert_on_conn(write.conn(), &newest).await?;
            stack_status_store_on_conn(write.conn(), agent, &newest).await?;
        }
        let repairs = newest_of_each_stack(new_ones().filter(is_repair));
        if !repairs.is_empty() {
            stack_status_store_conditions_on_conn(write.conn(), agent, &repairs).await?;
        }
        write
            .notify_webhooks_of_reports(agent, &new_ones().map(|filed| &filed.report).collect::<Vec<_>>())
            .await?;
        let (accepted, duplicates): (Vec<EventId>, Vec<EventId>) =
            filed.iter().map(|filed| filed.report.id).partition(|id| new.contains(id));
        let response = write.finish(StatusCode::OK, &ReportReceipt { accepted, duplicates, refused }).await?;
        new_ones().for_each(|filed| broker.metrics.reported(&filed.report));
        Ok(response)
    })
    .await
}

/// Files each report under the project of its stack: an agent belongs to no project.
async fn file(broker: &Broker, reports: Vec<Report>) -> ApiResult<Vec<Filed>> {
    let named: BTreeSet<StackId> = reports.iter().map(|report| report.stack_id).collect();
    let mut projects: HashMap<StackId, String> = HashMap::new();
    {
        let snapshot = broker.index.snapshot();
        let known = named.iter().filter_map(|stack| snapshot.stack(*stack));
        projects.extend(known.map(|stack| (stack.id, stack.project.clone())));
    }
    // Not in the index: deleted and held by no agent, created a moment ago on another replica, or lost in a restore.
    let rest: Vec<StackId> = named.into_iter().filter(|stack| !projects.contains_key(stack)).collect();
    if !rest.is_empty() {
        projects.extend(stack_projects(&broker.pool, &rest).await?);
    }
    let project = |stack| projects.get(&stack).map_or(DEFAULT_PROJECT, String::as_str).to_owned();
    Ok(reports.into_iter().map(|report| Filed::new(project(report.stack_id), report)).collect())
}

/// Fills in the hops that the broker knows better than the agent.
fn fill_hops(broker: &Broker, agent: AgentId, reports: &mut [Report], now: Timestamp) {
    let snapshot = broker.index.snapshot();
    let agent = snapshot.agent(agent);
    for report in reports {
        report.hops.reported = Some(now);
        let known = agent
            .zip(snapshot.stack(report.stack_id))
            .and_then(|(agent, stack)| desired(agent, stack))
            .filter(|wanted| wanted.sequence_id() == report.sequence_id);
        if let Some(wanted) = known {
            report.hops.published = Some(wanted.object.published_at);
            // The agent may have seen the object before a later target was added; the first time counts.
            report.hops.targeted.get_or_insert(wanted.targeted_at);
            report.hops.released.get_or_insert(wanted.released_at);
        }
    }
}

//! Reports of an agent, in batches. Each becomes one event, however often it is sent.

use std::collections::BTreeMap;

use axum::extract::State;
use brokkr_api::audit::RefusalReason;
use brokkr_api::report::{BATCH, Report, ReportBatch, ReportReceipt, Transition};
use brokkr_api::{AgentId, EventId, SequenceId, StackId};
use http::StatusCode;
use jiff::Timestamp;

use crate::domain::audit::AuditRecord;
use crate::domain::claims::{self, reads_as_target};
use crate::domain::envelope::desired;
use crate::domain::filing::{Filed, FiledBatch, clamp_times, sift};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::write;
use crate::state::Broker;
use crate::store::holds::holds_recorded;

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
    broker.access.budgets.check_agent(agent, batch.reports.len(), change.body.len()).await?;
    let (reports, malformed) = sift(agent, batch.reports);
    let (mut filed, not_allowed) = file(&broker, agent, reports).await?;
    let refused = note_refused(&broker, &change, malformed, not_allowed)?;
    for (project, rows, bytes) in sizes(&filed, change.body.len()) {
        broker.access.budgets.check_project(project, rows, bytes).await?;
    }
    let now = Timestamp::now();
    fill_hops(&broker, agent, &mut filed, now);
    clamp_times(&mut filed, now);
    let applied = applied_as_target(&broker, agent, &filed);
    let ids: Vec<EventId> = filed.iter().map(|filed| filed.report.id).collect();
    if ids.is_empty() {
        let receipt = ReportReceipt { accepted: Vec::new(), duplicates: Vec::new(), refused };
        return write::answer_at(&broker, broker.index.position(), &receipt);
    }
    // A repeated request needs no idempotency key: the id of a report follows from its content, and is stored once.
    let stored = broker.reports.store(FiledBatch { agent, filed, applied }, change.body.len()).await?;
    let (accepted, duplicates) = ids.into_iter().partition(|id| stored.new.contains(id));
    let receipt = ReportReceipt { accepted, duplicates, refused };
    write::answer_at(&broker, write::position(&broker, stored.xid), &receipt)
}

/// Files each report under the project of its stack: an agent belongs to no project. Returns the refused ones, too: a
/// report needs a stack that targets the agent or that the agent holds, and a version that was released to it.
async fn file(
    broker: &Broker,
    agent: AgentId,
    reports: Vec<Report>,
) -> ApiResult<(Vec<Filed>, Vec<(EventId, RefusalReason)>)> {
    let mut filed = Vec::with_capacity(reports.len());
    let mut rest = allowed_by_index(broker, agent, reports, &mut filed);
    if rest.is_empty() {
        return Ok((filed, Vec::new()));
    }
    // The last report about a stack may arrive after the agent no longer holds it; and a version that was released to an agent
    // stays so when the agent gets other labels.
    let stacks: Vec<StackId> = rest.iter().map(|(report, _)| report.stack_id).collect();
    let recorded = holds_recorded(&broker.pool, agent, &stacks).await?;
    rest.retain(|(report, reason)| {
        let Some(stack) = recorded.get(&report.stack_id) else { return true };
        let newest = if *reason == RefusalReason::NotTargeted { stack.newest } else { stack.released };
        if report.sequence_id <= newest {
            filed.push(Filed::new(agent, stack.project.clone(), report.clone()));
        }
        report.sequence_id > newest
    });
    if rest.is_empty() {
        return Ok((filed, Vec::new()));
    }
    // Only a refusal can be wrong because this replica is behind.
    broker.index_is_current().await?;
    let rest = rest.into_iter().map(|(report, _)| report).collect();
    let refused = allowed_by_index(broker, agent, rest, &mut filed);
    Ok((filed, refused.into_iter().map(|(report, reason)| (report.id, reason)).collect()))
}

/// Files the reports that the index allows, and returns the others.
fn allowed_by_index(
    broker: &Broker,
    agent: AgentId,
    reports: Vec<Report>,
    filed: &mut Vec<Filed>,
) -> Vec<(Report, RefusalReason)> {
    let snapshot = broker.index.snapshot();
    let facts = snapshot.agent(agent);
    let mut rest = Vec::new();
    for report in reports {
        let stack = snapshot.stack(report.stack_id);
        match (claims::report(facts, stack, report.sequence_id), stack) {
            (Ok(()), Some(stack)) => filed.push(Filed::new(agent, stack.project.clone(), report)),
            (Ok(()), None) => rest.push((report, RefusalReason::NotTargeted)),
            (Err(reason), _) => rest.push((report, reason)),
        }
    }
    rest
}

/// Adds the refused reports to the audit log, and returns their ids.
fn note_refused(
    broker: &Broker,
    change: &Change,
    malformed: Vec<EventId>,
    not_allowed: Vec<(EventId, RefusalReason)>,
) -> ApiResult<Vec<EventId>> {
    let malformed = malformed.into_iter().map(|id| (id, RefusalReason::MalformedReport));
    let refused: Vec<(EventId, RefusalReason)> = malformed.chain(not_allowed).collect();
    let caller = change.caller()?;
    for (_, reason) in &refused {
        broker.refusals.push(AuditRecord::refused(caller, &change.origin, StatusCode::OK, *reason));
    }
    if let Some((_, first)) = refused.first() {
        tracing::warn!(agent_id = %caller.agent()?.id, count = refused.len(), reason = %first, "refused reports");
    }
    Ok(refused.into_iter().map(|(id, _)| id).collect())
}

/// Returns the number of reports of each project, and its share of the bytes.
fn sizes(filed: &[Filed], bytes: usize) -> Vec<(&str, usize, usize)> {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for filed in filed {
        *rows.entry(&filed.project).or_default() += 1;
    }
    rows.into_iter().map(|(project, rows)| (project, rows, bytes * rows / filed.len())).collect()
}

/// Returns the versions that the agent has applied, or begun during a rollout, as a target: it may read them and report about
/// them after it is no longer one.
fn applied_as_target(broker: &Broker, agent: AgentId, filed: &[Filed]) -> Vec<(StackId, SequenceId)> {
    let snapshot = broker.index.snapshot();
    let Some(facts) = snapshot.agent(agent) else { return Vec::new() };
    let applied = filed.iter().map(|filed| &filed.report).filter(|report| {
        snapshot.stack(report.stack_id).is_some_and(|stack| {
            let is_begun = report.transition == Transition::Applied || stack.has_rollout();
            is_begun && reads_as_target(facts, stack, report.sequence_id)
        })
    });
    let mut newest: BTreeMap<StackId, SequenceId> = BTreeMap::new();
    for report in applied {
        let known = newest.entry(report.stack_id).or_insert(report.sequence_id);
        *known = (*known).max(report.sequence_id);
    }
    newest.into_iter().collect()
}

/// Fills in the hops that the broker knows better than the agent.
fn fill_hops(broker: &Broker, agent: AgentId, filed: &mut [Filed], now: Timestamp) {
    let snapshot = broker.index.snapshot();
    let agent = snapshot.agent(agent);
    for report in filed.iter_mut().map(|filed| &mut filed.report) {
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

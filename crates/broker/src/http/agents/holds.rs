//! Stacks that an agent holds. The agent announces a stack here before it writes the stack's first object.

use std::collections::{BTreeSet, HashMap};

use axum::extract::State;
use brokkr_api::agents::{HeldStack, Holds};
use brokkr_api::audit::RefusalReason;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::{Session, header};
use brokkr_api::{AgentId, ErrorCode, StackId};
use http::StatusCode;

use crate::domain::audit::AuditRecord;
use crate::domain::claims::{HoldClaim, hold_claim};
use crate::domain::session::refusal;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::headers::optional;
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::store::agents::agent_lock_on_conn;
use crate::store::holds::{
    holds_fetch_on_conn, holds_mark_reported_on_conn, holds_replace_on_conn, holds_store_versions_on_conn,
};
use crate::store::outbox::OutboxNotification;

/// The maximum number of stacks that an agent holds.
const MOST: usize = 10_000;

/// Replace the set of stacks that the agent holds.
///
/// The set is durable when the response arrives. A stack counts only if it targets the agent now, or did when the agent
/// announced it. Other stacks are refused if the agent only announces them. If it says that it has them (`held`), they are
/// stored as unconfirmed, and an admin decides.
#[utoipa::path(put, path = "/api/v1/agents/{agent}/holds", tag = "agents", request_body = Holds,
    params(("agent" = String, Path, description = "Id")), responses((status = 204, description = "Stored")))]
pub async fn put_holds(State(broker): BrokerState, change: Change) -> ApiResult {
    let mut holds: Holds = change.json()?;
    let caller = change.caller()?;
    let agent = caller.agent()?.id;
    let session: Option<Session> = optional(&change.headers, header::SESSION)?;
    if holds.stacks.len().max(holds.held.len()) > MOST {
        return Err(ApiError::invalid_request(format!("an agent can have at most {MOST} stacks")));
    }
    holds.stacks.sort_unstable();
    holds.stacks.dedup();
    let asked = broker.restore.for_agent(agent).must_report_holds;
    if asked || !are_known(&broker, agent, &holds.stacks) {
        // Only a refusal can be wrong because this replica is behind. Not inside the transaction, which the index waits for.
        broker.index_is_current().await?;
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let known = agent_lock_on_conn(write.conn(), agent).await?;
        let known = known.ok_or_else(|| ApiError::not_found("agent"))?;
        // A superseded process must not overwrite the holds of its successor.
        if let Some(code) = session.and_then(|session| refusal(known, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        let recorded = holds_fetch_on_conn(write.conn(), agent).await?;
        let after_restore = holds_mark_reported_on_conn(write.conn(), agent).await?;
        if after_restore && !asked {
            broker.restore.must_report_holds(agent);
            return Err(broker.behind(broker.index.position()));
        }
        let claims = judge(&broker, agent, &holds.stacks, &recorded, after_restore);
        let new = |(stack, claim): &&(StackId, HoldClaim)| {
            *claim == HoldClaim::Unconfirmed && recorded.get(stack) != Some(&false)
        };
        let present: BTreeSet<StackId> = holds.held.iter().map(|held| held.stack_id).collect();
        if let Some((stack, _)) = claims.iter().filter(new).find(|(stack, _)| !present.contains(stack)) {
            let detail = format!("the stack {stack} does not target this agent");
            return Err(ApiError::new(ErrorCode::BRK3007, detail).refused_for(RefusalReason::NotTargeted));
        }
        let audit = |count: usize, reason| {
            broker.refusals.push(AuditRecord {
                count: count as u64,
                ..AuditRecord::refused(caller, &change.origin, StatusCode::NO_CONTENT, reason)
            });
        };
        let new = claims.iter().filter(new).count();
        if new > 0 {
            tracing::warn!(
                agent_id = %agent,
                count = new,
                "the agent says that it has stacks that do not target it; an admin has to decide"
            );
            audit(new, RefusalReason::NotTargeted);
        }
        let contradicting = contradicting(&broker, &holds.held);
        if contradicting > 0 {
            tracing::error!(
                agent_id = %agent,
                count = contradicting,
                "the agent has another content under the sequence id of a stack; submit the stack again"
            );
            audit(contradicting, RefusalReason::OtherContent);
        }
        holds_replace_on_conn(write.conn(), agent, &claims).await?;
        holds_store_versions_on_conn(write.conn(), agent, &holds.held).await?;
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent)).await?;
        let answered = write.finish_empty().await?;
        broker.restore.holds_reported(agent);
        Ok(answered)
    })
    .await
}

/// Returns whether the index knows why the agent may hold each of the stacks, or that it may not.
fn are_known(broker: &Broker, agent: AgentId, stacks: &[StackId]) -> bool {
    let snapshot = broker.index.snapshot();
    let Some(facts) = snapshot.agent(agent) else { return false };
    stacks.iter().all(|stack| {
        let claim = hold_claim(facts, snapshot.stack(*stack), facts.holds(*stack), false);
        claim != HoldClaim::Unconfirmed || facts.unconfirmed.contains(stack)
    })
}

/// Returns how many stacks the agent has with the broker's sequence id and another content.
fn contradicting(broker: &Broker, held: &[HeldStack]) -> usize {
    let snapshot = broker.index.snapshot();
    let contradicts = |held: &&HeldStack| {
        let known = snapshot.stack(held.stack_id).and_then(|stack| stack.object(held.sequence_id));
        known.is_some_and(|object| held.checksum.is_some_and(|checksum| checksum != object.checksum))
    };
    held.iter().filter(contradicts).count()
}

/// Judges the claims of an agent.
fn judge(
    broker: &Broker,
    agent: AgentId,
    stacks: &[StackId],
    recorded: &HashMap<StackId, bool>,
    after_restore: bool,
) -> Vec<(StackId, HoldClaim)> {
    let snapshot = broker.index.snapshot();
    let facts = snapshot.agent(agent);
    let claim = |stack: &StackId| match facts {
        Some(facts) => {
            let is_recorded = recorded.get(stack) == Some(&true);
            hold_claim(facts, snapshot.stack(*stack), is_recorded, after_restore)
        }
        None => HoldClaim::Unconfirmed,
    };
    stacks.iter().map(|stack| (*stack, claim(stack))).collect()
}

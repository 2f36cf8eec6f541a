//! Stacks that an agent holds. The agent reports a stack here before it writes the stack's first object.

use axum::extract::State;
use brokkr_api::agents::Holds;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::{Session, header};
use brokkr_api::{AgentId, StackId};

use crate::domain::session::refusal;
use crate::domain::targeting::reaches;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::headers::optional;
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::store::agents::agent_lock_on_conn;
use crate::store::holds::{
    holds_keep_targets_on_conn, holds_mark_reported_on_conn, holds_replace_on_conn,
    holds_store_versions_on_conn,
};
use crate::store::outbox::OutboxNotification;

/// The maximum number of stacks that an agent holds.
const MOST: usize = 10_000;

/// Replace the set of stacks that the agent holds.
///
/// The set is durable when the response arrives.
#[utoipa::path(put, path = "/api/v1/agents/{agent}/holds", tag = "agents", request_body = Holds,
    params(("agent" = String, Path, description = "Id")), responses((status = 204, description = "Stored")))]
pub async fn put_holds(State(broker): BrokerState, change: Change) -> ApiResult {
    let holds: Holds = change.json()?;
    let agent = change.caller()?.agent()?.id;
    let session: Option<Session> = optional(&change.headers, header::SESSION)?;
    if holds.stacks.len().max(holds.held.len()) > MOST {
        return Err(ApiError::invalid_request(format!("an agent can have at most {MOST} stacks")));
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let known = agent_lock_on_conn(write.conn(), agent).await?;
        let known = known.ok_or_else(|| ApiError::not_found("agent"))?;
        // A superseded process must not overwrite the holds of its successor.
        if let Some(code) = session.and_then(|session| refusal(known, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        holds_replace_on_conn(write.conn(), agent, &holds.stacks).await?;
        let kept = keep_as_targets(&broker, &mut write, agent, &holds).await?;
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(agent)).await?;
        for (project, stack) in &kept {
            write.notify(project, OutboxNotification::Stack(*stack)).await?;
        }
        let answered = write.finish_empty().await?;
        broker.restore.holds_reported(agent);
        Ok(answered)
    })
    .await
}

/// After a restore, all agents are asked to report what they hold. The first report of an agent makes it a target of
/// the stacks that it holds: otherwise a target that was lost in the restore would become a removal. Returns the
/// added targets.
async fn keep_as_targets(
    broker: &Broker,
    write: &mut Write,
    agent: AgentId,
    holds: &Holds,
) -> ApiResult<Vec<(String, StackId)>> {
    holds_store_versions_on_conn(write.conn(), agent, &holds.held).await?;
    if !holds_mark_reported_on_conn(write.conn(), agent).await? {
        return Ok(Vec::new());
    }
    let unreached: Vec<StackId> = {
        let snapshot = broker.index.snapshot();
        let facts = snapshot.agent(agent);
        let reached = |stack: &StackId| {
            facts.zip(snapshot.stack(*stack)).is_some_and(|(agent, stack)| reaches(agent, stack))
        };
        holds.stacks.iter().copied().filter(|stack| !reached(stack)).collect()
    };
    let kept = holds_keep_targets_on_conn(write.conn(), agent, &unreached).await?;
    for (project, stack) in &kept {
        tracing::warn!(
            agent_id = %agent,
            project,
            stack_id = %stack,
            "the agent has the stack, but in the restored database the stack does not target the agent; \
             added the agent to its targets"
        );
    }
    Ok(kept)
}

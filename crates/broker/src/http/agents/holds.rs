//! An agent says which stacks it holds, before it first writes for a new one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::agents::Holds;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::{Session, header};
use brokkr_api::{AgentId, StackId};

use crate::domain::session::refusal;
use crate::domain::targeting::reaches;
use crate::error::ApiError;
use crate::http::change::Change;
use crate::http::headers::optional;
use crate::http::write::{self, Keep, Write};
use crate::state::Broker;
use crate::store::agents::agent_lock_on_conn;
use crate::store::holds::{
    holds_answer_on_conn, holds_keep_targets_on_conn, holds_replace_on_conn, holds_tell_on_conn,
};
use crate::store::outbox::Doorbell;

/// An agent holds this many stacks at most.
const MOST: usize = 10_000;

/// Tell the complete set of stacks that the agent holds. Durable when answered.
#[utoipa::path(put, path = "/api/v1/agents/{agent}/holds", tag = "agents", request_body = Holds,
    params(("agent" = String, Path, description = "Id")), responses((status = 204, description = "Stored")))]
pub async fn put_holds(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let holds: Holds = change.json()?;
    let agent = change.caller()?.agent()?.id;
    let session: Option<Session> = optional(&change.headers, header::SESSION)?;
    if holds.stacks.len().max(holds.held.len()) > MOST {
        return Err(ApiError::unreadable(format!("an agent holds at most {MOST} stacks")));
    }
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let known = agent_lock_on_conn(write.conn(), agent).await?;
        let known = known.ok_or_else(|| ApiError::not_found("agent"))?;
        // A process that was superseded must not overwrite what its successor holds.
        if let Some(code) = session.and_then(|session| refusal(known, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        holds_replace_on_conn(write.conn(), agent, &holds.stacks).await?;
        let kept = answer_the_question(&broker, &mut write, agent, &holds).await?;
        write.ring(DEFAULT_PROJECT, Doorbell::Agent(agent)).await?;
        for (project, stack) in &kept {
            write.ring(project, Doorbell::Stack(*stack)).await?;
        }
        let answered = write.finish_empty().await?;
        broker.restore.holds_reported(agent);
        Ok(answered)
    })
    .await
}

/// After a restore, all agents are asked what they hold. The first answer of each keeps what the agent has: a stack
/// whose target was lost with the restore would else be a removal.
async fn answer_the_question(
    broker: &Broker,
    write: &mut Write<'_>,
    agent: AgentId,
    holds: &Holds,
) -> Result<Vec<(String, StackId)>, ApiError> {
    holds_tell_on_conn(write.conn(), agent, &holds.held).await?;
    if !holds_answer_on_conn(write.conn(), agent).await? {
        return Ok(Vec::new());
    }
    let unreached: Vec<StackId> = {
        let picture = broker.index.picture();
        let facts = picture.agent(agent);
        let reached = |stack: &StackId| {
            facts.zip(picture.stack(*stack)).is_some_and(|(agent, stack)| reaches(agent, stack))
        };
        holds.stacks.iter().copied().filter(|stack| !reached(stack)).collect()
    };
    let kept = holds_keep_targets_on_conn(write.conn(), agent, &unreached).await?;
    for (project, stack) in &kept {
        tracing::warn!(%agent, project, %stack, "held, and not targeted by what was restored: kept as a target");
    }
    Ok(kept)
}

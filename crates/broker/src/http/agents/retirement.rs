//! Agents that leave: retired in good order, or abandoned because their cluster does not come back.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::agents::{AbandonAgent, Agent};

use crate::error::ApiError;
use crate::http::agents::keys::nobodys_key;
use crate::http::agents::{find, finish};
use crate::http::change::Change;
use crate::http::write::{self, Keep, Write};
use crate::state::Broker;
use crate::store::agent_keys::agent_keys_revoke_on_conn;
use crate::store::agent_leave::{agent_abandon_on_conn, agent_untarget_on_conn};
use crate::store::outbox::Doorbell;

const LONGEST_REASON: usize = 500;

/// Retire an agent: nothing targets it from now on, so it removes everything that it brought, and reports that. Its
/// labels are taken off. When it holds nothing any more, it can be abandoned.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/retirement", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn retire_agent(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        untarget(&mut write, &found).await?;
        tracing::info!(agent_id = %found.id, agent = %found.name, "agent retires");
        finish(write, &found).await
    })
    .await
}

/// Abandon an agent whose cluster does not come back: its keys end, nothing targets it, and nothing is owed there any more.
/// What is still in its cluster stays there. Who gave it up, and why, is kept. It comes back with a join token made for it.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/abandonment", tag = "agents", request_body = AbandonAgent,
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn abandon_agent(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: AbandonAgent = change.json()?;
    let reason = wanted.reason.trim();
    if reason.is_empty() || reason.len() > LONGEST_REASON {
        return Err(ApiError::unreadable(format!("reason is between 1 and {LONGEST_REASON} bytes")));
    }
    let by = change.caller()?.token()?.name.clone();
    let nobodys = nobodys_key()?;
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        agent_keys_revoke_on_conn(write.conn(), found.id, &nobodys).await?;
        untarget(&mut write, &found).await?;
        agent_abandon_on_conn(write.conn(), found.id, &by, reason).await?;
        tracing::warn!(agent_id = %found.id, agent = %found.name, "agent abandoned");
        finish(write, &found).await
    })
    .await
}

async fn untarget(write: &mut Write<'_>, agent: &Agent) -> Result<(), ApiError> {
    for (project, stack) in agent_untarget_on_conn(write.conn(), agent.id).await? {
        write.ring(&project, Doorbell::Stack(stack)).await?;
    }
    Ok(())
}

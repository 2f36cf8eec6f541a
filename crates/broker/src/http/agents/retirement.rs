//! Agents that leave: retired with their resources removed, or abandoned because their cluster does not come
//! back, and then deleted.

use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::agents::{AbandonAgent, Agent};
use brokkr_api::names::DEFAULT_PROJECT;
use sqlx::PgConnection;

use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::keys::unusable_key;
use crate::http::agents::{find, finish};
use crate::http::change::{Change, check_reason};
use crate::http::write::{self, ResultStorage, Write};
use crate::store::Doing as _;
use crate::store::agent_keys::agent_keys_revoke_on_conn;
use crate::store::agent_retirement::{
    agent_abandon_on_conn, agent_delete_on_conn, agent_in_use_on_conn, agent_reports_delete_on_conn,
    agent_untarget_on_conn,
};
use crate::store::agents::{AgentRef, agent_fetch};
use crate::store::outbox::{OutboxNotification, outbox_insert_on_conn};

/// Retire an agent.
///
/// Its labels and targets are removed, so that it removes everything it applied and reports that. When it holds no
/// stack any more, it can be abandoned.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/retirement", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn retire_agent(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    change: Change,
) -> ApiResult {
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        untarget(&mut write, &found).await?;
        tracing::info!(agent_id = %found.id, agent = %found.name, "agent retired");
        finish(write, &found).await
    })
    .await
}

/// Abandon an agent that does not come back.
///
/// Its keys, labels and targets are removed, and removals there are no longer waited for. Resources in its cluster
/// stay. The name of the token and the reason are stored. The agent can return with a join token made for it.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/abandonment", tag = "agents", request_body = AbandonAgent,
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn abandon_agent(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    change: Change,
) -> ApiResult {
    let request: AbandonAgent = change.json()?;
    let reason = check_reason(&request.reason)?;
    let by = change.caller()?.token()?.name.clone();
    let unusable = unusable_key()?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = find(&mut write, &agent).await?;
        write.audit_reason(reason);
        agent_keys_revoke_on_conn(write.conn(), found.id, &unusable).await?;
        untarget(&mut write, &found).await?;
        agent_abandon_on_conn(write.conn(), found.id, &by, reason).await?;
        tracing::warn!(agent_id = %found.id, agent = %found.name, "agent abandoned");
        finish(write, &found).await
    })
    .await
}

/// Delete an agent that has left.
///
/// Its keys must be revoked, and it must hold no stack: see retirement and abandonment. Its status, targets and join
/// tokens are deleted, and its name can be used again. Events and audit entries stay.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 204, description = "Deleted")))]
pub async fn delete_agent(
    State(broker): BrokerState,
    Path(agent): Path<String>,
    change: Change,
) -> ApiResult {
    if let Some(first) = write::first_result(&broker, &change, ResultStorage::Plain).await? {
        return Ok(first);
    }
    let found = agent_fetch(&broker.pool, &AgentRef::read(&agent)).await?;
    let found = found.ok_or_else(|| ApiError::not_found("agent"))?;
    {
        // Nearly all rows, before the transaction, so that it is short. If the agent joins again meanwhile, it only has to
        // report again.
        let mut connection = broker.pool.acquire().await.doing("delete the agent")?;
        check_unused(&mut connection, &found).await?;
        agent_reports_delete_on_conn(&mut connection, found.id).await?;
        // Otherwise views would show the reports if the agent is not deleted after all.
        outbox_insert_on_conn(&mut connection, DEFAULT_PROJECT, OutboxNotification::Agent(found.id)).await?;
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = find(&mut write, &found.id.to_string()).await?;
        check_unused(write.conn(), &found).await?;
        untarget(&mut write, &found).await?;
        for (project, stack) in agent_delete_on_conn(write.conn(), found.id).await? {
            write.notify(&project, OutboxNotification::Stack(stack)).await?;
        }
        write.notify(DEFAULT_PROJECT, OutboxNotification::Agent(found.id)).await?;
        tracing::info!(agent_id = %found.id, agent = %found.name, "agent deleted");
        let response = write.finish_empty().await?;
        broker.presence.forget(found.id);
        Ok(response)
    })
    .await
}

/// Locks the agent and refuses one that may still poll, or that holds stacks.
async fn check_unused(connection: &mut PgConnection, agent: &Agent) -> ApiResult<()> {
    match agent_in_use_on_conn(connection, agent.id).await? {
        Some(why) => {
            let detail = format!("the agent {} cannot be deleted: {why}", agent.name);
            Err(ApiError::new(ErrorCode::BRK2022, detail))
        }
        None => Ok(()),
    }
}

async fn untarget(write: &mut Write, agent: &Agent) -> ApiResult<()> {
    for (project, stack) in agent_untarget_on_conn(write.conn(), agent.id).await? {
        write.notify(&project, OutboxNotification::Stack(stack)).await?;
    }
    Ok(())
}

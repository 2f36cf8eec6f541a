//! Settles one stack after a restore: what the database has, or what an agent has, becomes a new object.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::objects::{DeploymentObject, Provenance};
use brokkr_api::system::{Settled, Settlement};
use brokkr_api::{ErrorCode, Name, StackId};
use http::StatusCode;

use crate::broker::Broker;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agents::AgentRef;
use crate::store::deployment_objects::{
    NewObject, deployment_object_fetch_content, deployment_object_insert_on_conn,
};
use crate::store::outbox::Doorbell;
use crate::store::restore::{
    Told, restore_find_on_conn, restore_stack_on_conn, restore_told_on_conn, restore_wish_on_conn,
};
use crate::store::stacks::{LockedStack, StackRef, stack_advance_on_conn, stack_lock_on_conn};

/// Settle a stack on which agents and database differ since a restore. If a content has to come from an agent first,
/// the answer names the agent, and the object is published when the content has come.
#[utoipa::path(post, path = "/api/v1/system/stacks/{stack}/settlement", tag = "system", request_body = Settlement,
    params(("stack" = String, Path, description = "Id, or name in the project of the token")),
    responses((status = 200, body = Settled)))]
pub async fn settle_stack(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let settlement: Settlement = change.json()?;
    let caller = change.caller()?;
    let (project, by) = (caller.project(), caller.token()?.name.clone());
    if broker.standing.hold().is_some() {
        return Err(broker.held());
    }
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let (id, known) = find(&mut write, project, &stack).await?;
    let agent = match &settlement {
        Settlement::Take { agent } => Some(agent_named(&broker, agent)?),
        Settlement::KeepRestored | Settlement::Delete => None,
    };
    let told = restore_told_on_conn(write.conn(), id, agent.as_ref().map(|agent| agent.0)).await?;
    let told =
        told.ok_or_else(|| unfit("the agent did not tell what it has; upgrade it, or take another"))?;
    let mut locked = None;
    if let Some(project) = &known {
        locked = stack_lock_on_conn(write.conn(), project, &StackRef::Id(id)).await?;
    }
    let object = match (settlement, agent, locked) {
        (Settlement::KeepRestored, _, Some(stack)) => Some(keep(&broker, &mut write, &stack, &by).await?),
        (Settlement::KeepRestored, ..) => return Err(unfit("the database does not know this stack")),
        (Settlement::Delete, _, Some(_)) => {
            return Err(unfit("the database knows this stack: settle it, then delete it as any other"));
        }
        (Settlement::Delete, _, None) => Some(bury(&mut write, id, &told, &by).await?),
        (Settlement::Take { .. }, Some(agent), stack) => {
            if stack.as_ref().is_some_and(|stack| stack.newest >= Some(told.sequence_id)) {
                return Err(unfit("this agent has nothing newer than the database"));
            }
            match (told.removing, told.checksum, &stack) {
                (true, _, Some(stack)) => Some(mark(&mut write, stack, &by).await?),
                (true, _, None) => Some(bury(&mut write, id, &told, &by).await?),
                (false, None, _) => return Err(unfit("this agent does not have the content of it")),
                (false, Some(digest), _) => {
                    check_names(&told)?;
                    restore_wish_on_conn(write.conn(), id, agent.0, &told, digest, &by).await?;
                    write.ring(DEFAULT_PROJECT, Doorbell::Agent(agent.0)).await?;
                    let settled = Settled { object: None, waiting_for: Some(agent.1) };
                    // Before the answer is awaited, so that this replica's agents are asked at once.
                    broker.standing.note_wanted(agent.0);
                    return write.finish(StatusCode::OK, &settled).await;
                }
            }
        }
        (Settlement::Take { .. }, None, _) => return Err(ApiError::not_found("agent")),
    };
    tracing::info!(stack_id = %id, by, ?object, "settled after a restore");
    write.finish(StatusCode::OK, &Settled { object, waiting_for: None }).await
}

async fn find(
    write: &mut Write<'_>,
    project: &str,
    stack: &str,
) -> Result<(StackId, Option<String>), ApiError> {
    let mut found = restore_find_on_conn(write.conn(), project, &StackRef::read(stack)).await?;
    match found.len() {
        0 => Err(unfit("no agent is ahead on this stack, and none holds it unknown to the database")),
        1 => Ok(found.remove(0)),
        _ => Err(unfit("several stacks have this name; give the id")
            .with_errors(found.iter().map(|(id, _)| id.to_string()).collect())),
    }
}

fn agent_named(broker: &Broker, agent: &str) -> Result<(brokkr_api::AgentId, Name), ApiError> {
    let picture = broker.index.picture();
    let facts = match AgentRef::read(agent) {
        AgentRef::Id(id) => picture.agent(id),
        AgentRef::Name(name) => picture.agent_named(&name),
    };
    let facts = facts.ok_or_else(|| ApiError::not_found("agent"))?;
    let name = facts.name.parse().map_err(|_| ApiError::not_found("agent"))?;
    Ok((facts.id, name))
}

/// The restored content once more, above what agents hold.
async fn keep(
    broker: &Broker,
    write: &mut Write<'_>,
    stack: &LockedStack,
    by: &str,
) -> Result<DeploymentObject, ApiError> {
    let newest = stack.newest.ok_or_else(|| unfit("the database has no version of this stack"))?;
    let stored = deployment_object_fetch_content(&broker.pool, newest).await?;
    let stored = stored.ok_or_else(|| unfit("the database has no version of this stack"))?;
    let new = NewObject {
        checksum: stored.object.checksum,
        parsed_digest: stored.object.parsed_digest,
        is_deletion_marker: stored.object.is_deletion_marker,
        keeps_resources: stored.object.keeps_resources,
        resources: stored.object.resources,
        content: &stored.content,
        submitted_by: by,
        provenance: Provenance::default(),
    };
    publish(write, stack, &new).await
}

/// The agents were told to remove it: that is what is published.
async fn mark(write: &mut Write<'_>, stack: &LockedStack, by: &str) -> Result<DeploymentObject, ApiError> {
    let nothing = Checksum::of(b"");
    let marker = NewObject {
        checksum: nothing,
        parsed_digest: nothing,
        is_deletion_marker: true,
        keeps_resources: false,
        resources: 0,
        content: b"",
        submitted_by: by,
        provenance: Provenance::default(),
    };
    publish(write, stack, &marker).await
}

/// A stack that the database lost is made again only to be deleted: whoever holds it removes it.
async fn bury(
    write: &mut Write<'_>,
    id: StackId,
    told: &Told,
    by: &str,
) -> Result<DeploymentObject, ApiError> {
    check_names(told)?;
    restore_stack_on_conn(write.conn(), &told.project, id, &told.stack_name, true).await?;
    let stack = stack_lock_on_conn(write.conn(), &told.project, &StackRef::Id(id)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    mark(write, &stack, by).await
}

async fn publish(
    write: &mut Write<'_>,
    stack: &LockedStack,
    new: &NewObject<'_>,
) -> Result<DeploymentObject, ApiError> {
    let object = deployment_object_insert_on_conn(write.conn(), stack, new).await?;
    stack_advance_on_conn(write.conn(), stack, object.sequence_id, object.is_deletion_marker).await?;
    write.ring(&stack.project, Doorbell::Stack(stack.id)).await?;
    Ok(object)
}

/// Names come from an agent here, and are as little trusted as from anybody else.
fn check_names(told: &Told) -> Result<(), ApiError> {
    for name in [&told.project, &told.stack_name] {
        if name.parse::<Name>().is_err() {
            return Err(unfit("what the agent tells as the name of the stack or its project is no name"));
        }
    }
    Ok(())
}

fn unfit(detail: &str) -> ApiError {
    ApiError::new(ErrorCode::BRK3006, detail)
}

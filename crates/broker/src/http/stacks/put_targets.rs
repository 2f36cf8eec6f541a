//! Replaces what a stack targets.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::{AgentId, ErrorCode, Selector, StackId};
use http::StatusCode;

use crate::broker::Broker;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::expect::Expect;
use crate::http::paging::Asked;
use crate::http::write::{Begun, Keep, Write};
use crate::index::Losses;
use crate::store::outbox::Doorbell;
use crate::store::stack_targets::{stack_targets_replace_on_conn, stack_targets_resolve_on_conn};
use crate::store::stacks::{StackRef, stack_fetch, stack_lock_on_conn};

/// One stack names this many agents and selectors at most; a selector reaches more.
const MOST: usize = 10_000;

/// Say which agents get the stack: one by one, by selector, or both. Replaces what was said before. Selectors that no
/// longer reach an agent need `expect`; an agent that is only no longer named does not.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}/targets", tag = "stacks", request_body = StackTargets,
    params(("stack" = String, Path, description = "Name or id"), Expect), responses((status = 200, body = Stack)))]
pub async fn put_targets(
    State(broker): State<Arc<Broker>>,
    Path(stack): Path<String>,
    Asked(expect): Asked<Expect>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: StackTargets = change.json()?;
    if wanted.agents.len() + wanted.selectors.len() > MOST {
        return Err(ApiError::unreadable(format!("a stack has at most {MOST} targets; use a selector")));
    }
    let project = change.caller()?.project();
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
    let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
    if locked.deleted_at.is_some() {
        return Err(ApiError::new(ErrorCode::BRK2008, format!("the stack {} was deleted", locked.name)));
    }
    let (agents, missing) = stack_targets_resolve_on_conn(write.conn(), &wanted.agents).await?;
    if !missing.is_empty() {
        let errors = missing.iter().map(|name| format!("there is no agent {name}")).collect();
        return Err(ApiError::not_found("agent").with_errors(errors));
    }
    expect.allow(&lost(&broker, locked.id, &agents, &wanted.selectors))?;
    stack_targets_replace_on_conn(write.conn(), &locked, &agents, &wanted.selectors).await?;
    write.ring(project, Doorbell::Stack(locked.id)).await?;
    let stack: Option<Stack> = stack_fetch(write.conn(), project, &StackRef::Id(locked.id)).await?;
    let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
    write.finish(StatusCode::OK, &stack).await
}

fn lost(broker: &Broker, stack: StackId, agents: &[AgentId], selectors: &[Selector]) -> Losses {
    let picture = broker.index.picture();
    picture.stack(stack).map(|stack| picture.lost_by_targets(stack, agents, selectors)).unwrap_or_default()
}

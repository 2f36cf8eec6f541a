//! Which agents a stack targets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::{AgentId, ErrorCode, Selector, StackId};
use http::StatusCode;

use crate::access::Caller;
use crate::error::ApiError;
use crate::http::agents::sees;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::Asked;
use crate::http::precondition;
use crate::http::write::{self, Keep};
use crate::index::Losses;
use crate::state::Broker;
use crate::store::outbox::Doorbell;
use crate::store::stack_targets::{stack_targets_replace_on_conn, stack_targets_resolve_on_conn};
use crate::store::stacks::{StackRef, stack_fetch, stack_lock_on_conn};

/// One stack names this many agents and selectors at most; a selector reaches more.
const MOST: usize = 10_000;

/// Say which agents get the stack: one by one, by selector, or both. Replaces what was said before. Selectors that no
/// longer reach an agent need `expect`; an agent that is only no longer named does not.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}/targets", tag = "stacks", request_body = StackTargets,
    params(("stack" = String, Path, description = "Name or id"), Expect, precondition::IfMatch), responses((status = 200, body = Stack)))]
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
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        let locked = stack_lock_on_conn(write.conn(), project, &StackRef::read(&stack)).await?;
        let locked = locked.ok_or_else(|| ApiError::not_found("stack"))?;
        if locked.deleted_at.is_some() {
            return Err(ApiError::new(ErrorCode::BRK2008, format!("the stack {} was deleted", locked.name)));
        }
        precondition::stack_itself(&mut write, &change, &locked).await?;
        let found = stack_targets_resolve_on_conn(write.conn(), &wanted.agents).await?;
        let agents = known(&broker, change.caller()?, locked.id, &wanted.agents, found)?;
        expect.allow(&lost(&broker, locked.id, &agents, &wanted.selectors))?;
        stack_targets_replace_on_conn(write.conn(), &locked, &agents, &wanted.selectors).await?;
        write.ring(project, Doorbell::Stack(locked.id)).await?;
        let stack: Option<Stack> = stack_fetch(write.conn(), project, &StackRef::Id(locked.id)).await?;
        let stack = stack.ok_or_else(|| ApiError::not_found("stack"))?;
        write.finish(StatusCode::OK, &stack).await
    })
    .await
}

/// The named agents, if the caller knows all of them: it sees them, or the stack named them before.
fn known(
    broker: &Broker,
    caller: &Caller,
    stack: StackId,
    wanted: &[String],
    found: Vec<(AgentId, String)>,
) -> Result<Vec<AgentId>, ApiError> {
    let picture = broker.index.picture();
    let before = picture.stack(stack).map(|stack| &stack.targets[..]).unwrap_or_default();
    let known: HashMap<String, AgentId> = found
        .into_iter()
        .filter(|(id, _)| before.iter().any(|target| target.agent == *id) || sees(&picture, caller, *id))
        .flat_map(|(id, name)| [(name, id), (id.to_string(), id)])
        .collect();
    let (mut agents, mut errors) = (BTreeSet::new(), Vec::new());
    for name in wanted {
        // An id may be written in more than one way.
        let id = name.parse::<AgentId>().map(|id| id.to_string());
        match known.get(id.as_ref().unwrap_or(name)) {
            Some(id) => {
                agents.insert(*id);
            }
            None => errors.push(format!("there is no agent {name}")),
        }
    }
    if errors.is_empty() {
        Ok(agents.into_iter().collect())
    } else {
        Err(ApiError::not_found("agent").with_errors(errors))
    }
}

fn lost(broker: &Broker, stack: StackId, agents: &[AgentId], selectors: &[Selector]) -> Losses {
    let picture = broker.index.picture();
    picture.stack(stack).map(|stack| picture.lost_by_targets(stack, agents, selectors)).unwrap_or_default()
}

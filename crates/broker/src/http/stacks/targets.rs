//! Which agents a stack targets.

use std::collections::{BTreeSet, HashMap};

use axum::extract::{Path, State};
use brokkr_api::stacks::{Stack, StackTargets};
use brokkr_api::{AgentId, Selector, StackId};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::rollout::policy::{Kind, resolve};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::can_see;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::QueryParams;
use crate::http::precondition;
use crate::http::rollouts::widen::widen;
use crate::http::stacks::{changed_stack, lock_existing_stack};
use crate::http::write::{self, ResultStorage};
use crate::index::Losses;
use crate::state::Broker;
use crate::store::outbox::OutboxNotification;
use crate::store::rollout_policies::rollout_policies_fetch;
use crate::store::stack_targets::{stack_targets_replace_on_conn, stack_targets_resolve_on_conn};
use crate::store::stacks::{StackRef, stack_fetch};

/// The maximum number of explicit agents and selectors of a stack.
const MOST: usize = 10_000;

/// Replace the targets of a stack: explicit agents, selectors, or both.
///
/// A change of selectors that removes the stack from agents needs `expect`; removing explicit agents does not. If many agents are
/// added, they get the stack in the waves of its rollout policy.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}/targets", tag = "stacks", request_body = StackTargets,
    params(("stack" = String, Path, description = "Name or id"), Expect, precondition::IfMatch), responses((status = 200, body = Stack)))]
pub async fn put_targets(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    QueryParams(expect): QueryParams<Expect>,
    change: Change,
) -> ApiResult {
    let request: StackTargets = change.json()?;
    if request.agents.len() + request.selectors.len() > MOST {
        return Err(ApiError::invalid_request(format!(
            "a stack can have at most {MOST} targets; use a selector"
        )));
    }
    let caller = change.caller()?;
    let (project, token) = (caller.project(), caller.token()?);
    wait_for_count(&broker, project, &stack, &request.selectors).await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        precondition::stack_itself(&mut write, &change, &locked).await?;
        let found = stack_targets_resolve_on_conn(write.conn(), &request.agents).await?;
        let agents = known(&broker, caller, locked.id, &request.agents, found)?;
        expect.check(&lost(&broker, locked.id, &agents, &request.selectors))?;
        widen(&broker, &mut write, &locked, &agents, &request.selectors, &token.name).await?;
        stack_targets_replace_on_conn(write.conn(), &locked, &agents, &request.selectors).await?;
        write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        let stack = changed_stack(&mut write, &locked).await?;
        write.finish(StatusCode::OK, &stack).await
    })
    .await
}

/// Waits until the index is current, if the stack loses a selector, or if agents that it gains may get its version in waves: only
/// then are agents counted.
async fn wait_for_count(
    broker: &Broker,
    project: &str,
    stack: &str,
    selectors: &[Selector],
) -> ApiResult<()> {
    let Some(stack) = stack_fetch(&broker.pool, project, &StackRef::read(stack)).await? else {
        return Ok(());
    };
    let loses = stack.targets.selectors.iter().any(|selector| !selectors.contains(selector));
    if loses || is_staged(broker, &stack).await? {
        broker.index_is_current().await?;
    }
    Ok(())
}

/// Returns whether agents that the stack gains may get its version in waves.
async fn is_staged(broker: &Broker, stack: &Stack) -> ApiResult<bool> {
    if stack.sequence_id.is_none() {
        return Ok(false);
    }
    let policies = rollout_policies_fetch(&broker.pool, &stack.project, Some(stack.id)).await?;
    let policies = [policies.stack, policies.project, policies.installation];
    Ok(resolve(&policies, Kind::First).is_some())
}

/// Resolves the named agents. The caller has to see each of them, unless the stack named it before.
fn known(
    broker: &Broker,
    caller: &Caller,
    stack: StackId,
    names: &[String],
    found: Vec<(AgentId, String)>,
) -> ApiResult<Vec<AgentId>> {
    let snapshot = broker.index.snapshot();
    let before = snapshot.stack(stack).map(|stack| &stack.targets[..]).unwrap_or_default();
    let known: HashMap<String, AgentId> = found
        .into_iter()
        .filter(|(id, _)| before.iter().any(|target| target.agent == *id) || can_see(&snapshot, caller, *id))
        .flat_map(|(id, name)| [(name, id), (id.to_string(), id)])
        .collect();
    let (mut agents, mut errors) = (BTreeSet::new(), Vec::new());
    for name in names {
        // An id has more than one spelling.
        let id = name.parse::<AgentId>().map(|id| id.to_string());
        match known.get(id.as_ref().unwrap_or(name)) {
            Some(id) => {
                agents.insert(*id);
            }
            None => errors.push(format!("agent {name} does not exist")),
        }
    }
    if errors.is_empty() {
        Ok(agents.into_iter().collect())
    } else {
        Err(ApiError::not_found("agent").with_errors(errors))
    }
}

fn lost(broker: &Broker, stack: StackId, agents: &[AgentId], selectors: &[Selector]) -> Losses {
    let snapshot = broker.index.snapshot();
    snapshot.stack(stack).map(|stack| snapshot.lost_by_targets(stack, agents, selectors)).unwrap_or_default()
}

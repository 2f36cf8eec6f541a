//! Policies for rollouts.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::rollouts::{RolloutPolicies, RolloutPolicy};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::rollout::policy::{Kind, resolve};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::stacks::{find_stack, lock_existing_stack};
use crate::http::write::{self, ResultStorage, Write};
use crate::store::projects::project_fetch;
use crate::store::rollout_policies::{PolicyScope, rollout_policies_fetch, rollout_policy_put_on_conn};

/// Get the rollout policies of the installation and of the caller's project.
#[utoipa::path(get, path = "/api/v1/rollout-policy", tag = "rollouts",
    responses((status = 200, body = RolloutPolicies)))]
pub async fn get_rollout_policy(
    State(broker): BrokerState,
    caller: Caller,
) -> ApiResult<Json<RolloutPolicies>> {
    let policies = rollout_policies_fetch(&broker.pool, caller.project(), None).await?;
    Ok(Json(with_effective(policies)))
}

/// Get the rollout policies that apply to a stack.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/rollout-policy", tag = "rollouts",
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = RolloutPolicies)))]
pub async fn get_stack_rollout_policy(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
) -> ApiResult<Json<RolloutPolicies>> {
    let stack = find_stack(&broker, caller.project(), &stack).await?;
    let policies = rollout_policies_fetch(&broker.pool, caller.project(), Some(stack.id)).await?;
    Ok(Json(with_effective(policies)))
}

/// Set the rollout policy of the installation. An empty policy removes it.
#[utoipa::path(put, path = "/api/v1/rollout-policy", tag = "rollouts", request_body = RolloutPolicy,
    responses((status = 200, body = RolloutPolicy)))]
pub async fn put_rollout_policy(State(broker): BrokerState, change: Change) -> ApiResult {
    let policy = checked(&change)?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        put(&mut write, &change, PolicyScope::Installation, &policy).await?;
        write.finish(StatusCode::OK, &policy).await
    })
    .await
}

/// Set the rollout policy of a project. An empty policy removes it.
#[utoipa::path(put, path = "/api/v1/projects/{project}/rollout-policy", tag = "rollouts", request_body = RolloutPolicy,
    params(("project" = String, Path, description = "Name")), responses((status = 200, body = RolloutPolicy)))]
pub async fn put_project_rollout_policy(
    State(broker): BrokerState,
    Path(project): Path<String>,
    change: Change,
) -> ApiResult {
    let policy = checked(&change)?;
    let token = change.caller()?.token()?;
    if !token.role.is_over_installation() && token.project != project {
        return Err(ApiError::not_found("project"));
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let found = project_fetch(write.conn(), &project).await?;
        found.ok_or_else(|| ApiError::not_found("project"))?;
        put(&mut write, &change, PolicyScope::Project(&project), &policy).await?;
        write.finish(StatusCode::OK, &policy).await
    })
    .await
}

/// Set the rollout policy of a stack. An empty policy removes it.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}/rollout-policy", tag = "rollouts", request_body = RolloutPolicy,
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = RolloutPolicy)))]
pub async fn put_stack_rollout_policy(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let policy = checked(&change)?;
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        put(&mut write, &change, PolicyScope::Stack(project, locked.id), &policy).await?;
        write.finish(StatusCode::OK, &policy).await
    })
    .await
}

fn checked(change: &Change) -> ApiResult<RolloutPolicy> {
    let policy: RolloutPolicy = change.json()?;
    policy.check().map_err(ApiError::invalid_request)?;
    Ok(policy)
}

async fn put(
    write: &mut Write,
    change: &Change,
    scope: PolicyScope<'_>,
    policy: &RolloutPolicy,
) -> ApiResult<()> {
    let by = &change.caller()?.token()?.name;
    Ok(rollout_policy_put_on_conn(write.conn(), scope, policy, by).await?)
}

fn with_effective(policies: RolloutPolicies) -> RolloutPolicies {
    let scopes = [policies.stack.clone(), policies.project.clone(), policies.installation.clone()];
    let effective = resolve(&scopes, Kind::Version).map_or(
        RolloutPolicy { staged: Some(false), ..RolloutPolicy::default() },
        |policy| RolloutPolicy {
            soak_seconds: policy.soak.map(|soak| soak.as_secs() as u32),
            ..policy.shown(0)
        },
    );
    RolloutPolicies { effective, ..policies }
}

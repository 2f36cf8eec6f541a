//! Health rules: how agents read the health of custom kinds.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use brokkr_api::health_rules::{HealthRule, HealthRules};
use brokkr_api::ids::Checksum;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::access::Caller;
use crate::domain::health_rules;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::agent_facts;
use crate::http::change::Change;
use crate::http::stacks::{find_stack, lock_existing_stack};
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::store::health_rules::{RuleScope, health_rules_fetch, health_rules_put_on_conn};
use crate::store::outbox::OutboxNotification;

/// Get the health rules of the installation.
#[utoipa::path(get, path = "/api/v1/health-rules", tag = "health rules", responses((status = 200, body = HealthRules)))]
pub async fn get_health_rules(State(broker): BrokerState) -> ApiResult<Json<HealthRules>> {
    fetch(&broker, RuleScope::Installation).await
}

/// Get the health rules of a stack, without those of the installation.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/health-rules", tag = "health rules",
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = HealthRules)))]
pub async fn get_stack_health_rules(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
) -> ApiResult<Json<HealthRules>> {
    let stack = find_stack(&broker, caller.project(), &stack).await?;
    fetch(&broker, RuleScope::Stack(caller.project(), stack.id)).await
}

/// Set the health rules of the installation. An empty list removes them.
///
/// They are for custom kinds in all stacks. The first rule that matches decides: the rules of the stack come first, then those of the
/// installation, then the built-in ones.
#[utoipa::path(put, path = "/api/v1/health-rules", tag = "health rules", request_body = HealthRules,
    responses((status = 200, body = HealthRules)))]
pub async fn put_health_rules(State(broker): BrokerState, change: Change) -> ApiResult {
    let rules = checked(&change)?;
    let (project, token) = (change.caller()?.project(), change.caller()?.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let before = read(health_rules_fetch(write.conn(), RuleScope::Installation).await?)?;
        write.audit_before(&before);
        health_rules_put_on_conn(write.conn(), RuleScope::Installation, &rules, &token.name).await?;
        write.notify(project, OutboxNotification::HealthRules).await?;
        write.finish(StatusCode::OK, &rules).await
    })
    .await
}

/// Set the health rules of a stack. An empty list removes them.
///
/// They win over the rules of the installation.
#[utoipa::path(put, path = "/api/v1/stacks/{stack}/health-rules", tag = "health rules", request_body = HealthRules,
    params(("stack" = String, Path, description = "Name or id")), responses((status = 200, body = HealthRules)))]
pub async fn put_stack_health_rules(
    State(broker): BrokerState,
    Path(stack): Path<String>,
    change: Change,
) -> ApiResult {
    let rules = checked(&change)?;
    let (project, token) = (change.caller()?.project(), change.caller()?.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_existing_stack(&mut write, project, &stack).await?;
        let scope = RuleScope::Stack(project, locked.id);
        let before = read(health_rules_fetch(write.conn(), scope).await?)?;
        write.audit_before(&before);
        health_rules_put_on_conn(write.conn(), scope, &rules, &token.name).await?;
        write.notify(project, OutboxNotification::Stack(locked.id)).await?;
        write.finish(StatusCode::OK, &rules).await
    })
    .await
}

/// Get the health rules that the target state of an agent names.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/health-rules/{checksum}", tag = "agents",
    params(("agent" = String, Path, description = "Id"), ("checksum" = String, Path, description = "SHA-256 of the rules")),
    responses((status = 200, body = Vec<HealthRule>)))]
pub async fn agent_health_rules(
    State(broker): BrokerState,
    Path((agent, checksum)): Path<(String, String)>,
) -> ApiResult {
    let missing = || ApiError::not_found("health rules");
    let checksum: Checksum = checksum.parse().map_err(|_| missing())?;
    let rules = {
        let snapshot = broker.index.snapshot();
        let agent = agent_facts(&snapshot, &agent)?;
        snapshot.health_rules_of(agent, checksum)
    };
    // An agent that got its target state from another replica, which knows more, asks again.
    let rules = rules.ok_or_else(missing)?;
    let headers =
        [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "private, max-age=31536000, immutable")];
    Ok((headers, Body::from(rules)).into_response())
}

fn checked(change: &Change) -> ApiResult<HealthRules> {
    let rules: HealthRules = change.json()?;
    health_rules::check(&rules).map_err(ApiError::invalid_request)?;
    Ok(rules)
}

async fn fetch(broker: &Broker, scope: RuleScope<'_>) -> ApiResult<Json<HealthRules>> {
    Ok(Json(read(health_rules_fetch(&broker.pool, scope).await?)?))
}

fn read(stored: serde_json::Result<HealthRules>) -> ApiResult<HealthRules> {
    stored.map_err(|error| {
        ApiError::new(brokkr_api::ErrorCode::BRK9001, "stored health rules are unreadable").because(error)
    })
}

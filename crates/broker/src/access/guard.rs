//! The one place where permission is checked: wrapped around every route of the table.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{AgentId, ErrorCode};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::assertion::BadAssertion;
use super::caller::{AgentCaller, Caller};
use super::permission::Permission;
use super::secret::{Secret, SecretKind};
use crate::broker::{Broker, Progress};
use crate::http::error::ApiError;
use crate::http::headers::position;
use crate::store::api_tokens::api_token_find;

pub async fn guard(
    State((broker, permission)): State<(Arc<Broker>, Permission)>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if permission == Permission::Public {
        return Ok(next.run(request).await);
    }
    let caller = authenticate(&broker, request.headers()).await?;
    let named = parameters.as_ref().ok().and_then(|parameters| {
        parameters.iter().find_map(|(name, value)| (name == "agent").then(|| value.to_owned()))
    });
    allow(permission, &caller, named.as_deref())?;
    request.extensions_mut().insert(caller.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(caller);
    Ok(response)
}

/// Who the credential is of. Streams ask again while they are open.
pub async fn authenticate(broker: &Broker, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let credential = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")))
        .map(str::trim)
        .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "no credential came with the request"))?;
    if credential.starts_with("brk_") {
        return Ok(Caller::Token(token(broker, credential).await?.into()));
    }
    Ok(Caller::Agent(agent(broker, headers, credential).await?))
}

async fn token(broker: &Broker, credential: &str) -> Result<WhoAmI, ApiError> {
    let secret = Secret::read(SecretKind::ApiToken, credential).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1001, "the token is damaged: its checksum does not fit")
    })?;
    api_token_find(&broker.pool, &secret.hash())
        .await?
        .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "the token is unknown or has expired"))
}

async fn agent(broker: &Broker, headers: &HeaderMap, credential: &str) -> Result<AgentCaller, ApiError> {
    let now = || jiff::Timestamp::now().as_second();
    let mut verdict = broker.assertions.verify(&broker.index, credential, now()).await;
    if let (Err(BadAssertion::UnknownAgent(_)), Some(wanted)) = (&verdict, position(headers)?) {
        // It may have joined at another replica a moment ago. Anybody may claim to have seen the future, so
        // that raises no alarm here, as it does for those who are known.
        if broker.progress(wanted).await == Progress::Behind {
            return Err(broker.behind(wanted));
        }
        verdict = broker.assertions.verify(&broker.index, credential, now()).await;
    }
    verdict.map_err(|error| ApiError::new(ErrorCode::BRK1001, error.to_string()).because(error))
}

/// Deny by default: only what is listed here passes.
fn allow(permission: Permission, caller: &Caller, named: Option<&str>) -> Result<(), ApiError> {
    let role = |least: Role| match caller {
        Caller::Token(token) if token.role >= least => Ok(()),
        Caller::Token(token) => Err(ApiError::new(
            ErrorCode::BRK1002,
            format!("this needs the role {least}, the token has {}", token.role),
        )),
        Caller::Agent(_) => Err(ApiError::new(ErrorCode::BRK1002, "agents may not do this")),
    };
    match (permission, caller) {
        (Permission::Public, _) | (Permission::AnyAgentOr(_), Caller::Agent(_)) => Ok(()),
        (Permission::Agent | Permission::AgentOr(_), Caller::Agent(agent)) => itself(agent, named),
        (Permission::Agent, Caller::Token(_)) => {
            Err(ApiError::new(ErrorCode::BRK1002, "this is for the agent itself"))
        }
        (Permission::Token(least) | Permission::AgentOr(least) | Permission::AnyAgentOr(least), _) => {
            role(least)
        }
    }
}

/// Another agent answers as if it were not there.
fn itself(agent: &AgentCaller, named: Option<&str>) -> Result<(), ApiError> {
    let named = named.and_then(|text| text.parse::<AgentId>().ok());
    if named == Some(agent.id) { Ok(()) } else { Err(ApiError::not_found("agent")) }
}

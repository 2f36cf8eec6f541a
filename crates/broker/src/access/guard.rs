//! The one place where permission is checked: wrapped around every route of the table.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use brokkr_api::audit::AuditKind;
use brokkr_api::protocol::header;
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{AgentId, ErrorCode};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;

use super::assertion::BadAssertion;
use super::audit::Deed;
use super::caller::{AgentCaller, Caller};
use super::limits::Bucket;
use super::origin::Origin;
use super::permission::Permission;
use super::secret::{Secret, SecretKind};
use crate::broker::{Broker, Progress};
use crate::http::error::{ApiError, Trouble};
use crate::http::headers::position;

pub async fn guard(
    State((broker, permission, bucket)): State<(Arc<Broker>, Permission, Bucket)>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let origin = Origin::of(request.extensions())?;
    if permission == Permission::Public {
        if bucket == Bucket::Registering {
            broker.limits.listens_to(origin.address).await?;
        }
        let response = next.run(request).await;
        if response.status() == StatusCode::UNAUTHORIZED {
            broker.limits.failed(origin.address).await?;
        }
        return Ok(response);
    }
    // Boxed: it is over when a poll begins to wait.
    let caller = Box::pin(known(&broker, request.headers(), &origin, bucket)).await?;
    let named = parameters.as_ref().ok().and_then(|parameters| {
        parameters.iter().find_map(|(name, value)| (name == "agent").then(|| value.to_owned()))
    });
    let reading = request.method() == Method::GET;
    let admitted = match allow(permission, &caller, named.as_deref(), reading) {
        Ok(()) => Box::pin(acting(&broker, &caller, request.headers())).await,
        Err(error) => Err(error),
    };
    let caller = match admitted {
        Ok(caller) => caller,
        Err(error) => {
            note_refused(&broker, &caller, &origin, error.status());
            return Err(error);
        }
    };
    request.extensions_mut().insert(caller.clone());
    let mut response = next.run(request).await;
    let trouble = response.extensions().get::<Trouble>();
    if trouble.is_some_and(|trouble| trouble.problem.code == ErrorCode::BRK1002) {
        note_refused(&broker, &caller, &origin, response.status());
    }
    response.extensions_mut().insert(caller);
    Ok(response)
}

/// What somebody tried and may not goes to the audit log. A database that does not answer is no refusal.
fn note_refused(broker: &Broker, caller: &Caller, origin: &Origin, status: StatusCode) {
    if status.is_client_error() {
        broker.refusals.tell(Deed::new(AuditKind::Refused, Some(caller), origin, status));
    }
}

/// Who it is, if they may ask so often. Only those who fail are counted by address: many may share one.
async fn known(
    broker: &Broker,
    headers: &HeaderMap,
    origin: &Origin,
    bucket: Bucket,
) -> Result<Caller, ApiError> {
    match authenticate(broker, headers, origin).await {
        Ok(caller) => {
            broker.limits.known(bucket, &caller).await?;
            Ok(caller)
        }
        Err(error) => {
            if error.status() == StatusCode::UNAUTHORIZED {
                broker.limits.failed(origin.address).await?;
            }
            Err(error)
        }
    }
}

/// Who the credential is of. Streams ask again while they are open.
pub async fn authenticate(broker: &Broker, headers: &HeaderMap, origin: &Origin) -> Result<Caller, ApiError> {
    let credential = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")))
        .map(str::trim)
        .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "no credential came with the request"))?;
    if credential.starts_with("brk_") {
        return Ok(Caller::Token(token(broker, credential, origin).await?));
    }
    Ok(Caller::Agent(agent(broker, headers, credential).await?))
}

async fn token(broker: &Broker, credential: &str, origin: &Origin) -> Result<Arc<WhoAmI>, ApiError> {
    let secret = Secret::read(SecretKind::ApiToken, credential).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1001, "the token is damaged: its checksum does not fit")
    })?;
    let refused = || ApiError::new(ErrorCode::BRK1001, "the token is unknown, revoked or expired");
    let who = broker.tokens.find(&broker.pool, secret.hash()).await?.ok_or_else(refused)?;
    if who.expires_at.is_some_and(|at| at <= Timestamp::now()) {
        note_refused(broker, &Caller::Token(who), origin, StatusCode::UNAUTHORIZED);
        return Err(refused());
    }
    Ok(who)
}

/// The caller in the project that the request is about. Another one than their own, only those over the
/// installation may name; for everybody else it is not there.
async fn acting(broker: &Broker, caller: &Caller, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let (Caller::Token(token), Some(named)) = (caller, headers.get(header::PROJECT)) else {
        return Ok(caller.clone());
    };
    let missing = || ApiError::not_found("project");
    let named = named.to_str().map_err(|_| missing())?;
    if named == token.project {
        return Ok(caller.clone());
    }
    let there =
        token.role.is_over_installation() && broker.tokens.project_exists(&broker.pool, named).await?;
    if !there {
        return Err(missing());
    }
    Ok(Caller::Token(Arc::new(WhoAmI { project: named.to_owned(), ..WhoAmI::clone(token) })))
}

async fn agent(broker: &Broker, headers: &HeaderMap, credential: &str) -> Result<AgentCaller, ApiError> {
    let now = || jiff::Timestamp::now().as_second();
    let mut verdict = broker.assertions.verify(&broker.index, &broker.pool, credential, now()).await;
    if let (Err(BadAssertion::UnknownAgent(_)), Some(wanted)) = (&verdict, position(headers)?) {
        // It may have joined at another replica a moment ago. Anybody may claim to have seen the future, so
        // that raises no alarm here, as it does for those who are known.
        if broker.progress(wanted).await == Progress::Behind {
            return Err(broker.behind(wanted));
        }
        verdict = broker.assertions.verify(&broker.index, &broker.pool, credential, now()).await;
    }
    if let Some((claimed, because)) = verdict.as_ref().err().and_then(BadAssertion::claims) {
        broker.presence.refused(claimed, because);
    }
    verdict.map_err(|error| match error {
        BadAssertion::Store(error) => error.into(),
        error => ApiError::new(ErrorCode::BRK1001, error.to_string()).because(error),
    })
}

/// Deny by default: only what is listed here passes.
fn allow(
    permission: Permission,
    caller: &Caller,
    named: Option<&str>,
    reading: bool,
) -> Result<(), ApiError> {
    let role = |least: Role| match caller {
        Caller::Token(token) if token.role.includes(least) => Ok(()),
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
        (Permission::Token(_), Caller::Token(token)) if reading && token.role == Role::Auditor => Ok(()),
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

//! The middleware of every route: authenticates the caller and checks its permission.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use brokkr_api::ErrorCode;
use brokkr_api::audit::RefusalReason;
use brokkr_api::protocol::header;
use brokkr_api::tokens::WhoAmI;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;

use super::body::BodyLimit;
use super::headers::position;
use crate::access::Permission;
use crate::access::assertion::BadAssertion;
use crate::access::caller::{AgentCaller, Caller};
use crate::access::limits::Bucket;
use crate::access::origin::Origin;
use crate::access::permission::allow;
use crate::access::secret::{Secret, SecretKind};
use crate::domain::audit::AuditRecord;
use crate::error::{ApiError, ApiResult, ProblemReport};
use crate::state::{Broker, Progress};

/// The properties of a route that the guard needs.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    pub permission: Permission,
    pub bucket: Bucket,
    pub body: BodyLimit,
}

pub async fn guard(
    State((broker, RouteRules { permission, bucket, body })): State<(Arc<Broker>, RouteRules)>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> ApiResult {
    let origin = Origin::of(request.extensions())?;
    request.extensions_mut().insert(body);
    if permission == Permission::Public {
        if bucket == Bucket::Registering {
            broker.access.limits.check_address(origin.address).await?;
        }
        let response = next.run(request).await;
        if response.status() == StatusCode::UNAUTHORIZED {
            broker.access.limits.count_failure(origin.address).await?;
        }
        return Ok(response);
    }
    // Boxed, so that it takes no memory while a poll waits.
    let caller = Box::pin(identify(&broker, request.headers(), &origin, bucket)).await?;
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
            let reason = error.refusal().unwrap_or(RefusalReason::PermissionDenied);
            note_refused(&broker, &caller, &origin, error.status(), reason);
            return Err(error);
        }
    };
    request.extensions_mut().insert(caller.clone());
    let mut response = next.run(request).await;
    if let Some(reason) = response.extensions().get::<ProblemReport>().and_then(|report| report.refusal) {
        note_refused(&broker, &caller, &origin, response.status(), reason);
    }
    response.extensions_mut().insert(caller);
    Ok(response)
}

/// Queues an audit entry for a refused request. A server error, such as an unreachable database, is not a
/// refusal.
fn note_refused(
    broker: &Broker,
    caller: &Caller,
    origin: &Origin,
    status: StatusCode,
    reason: RefusalReason,
) {
    if status.is_client_error() {
        broker.refusals.push(AuditRecord::refused(caller, origin, status, reason));
    }
}

/// Authenticates the caller and applies its rate limit. Only failures are counted by address: many agents may share one.
async fn identify(
    broker: &Broker,
    headers: &HeaderMap,
    origin: &Origin,
    bucket: Bucket,
) -> ApiResult<Caller> {
    match authenticate(broker, headers, origin).await {
        Ok(caller) => {
            broker.access.limits.check_caller(bucket, &caller).await?;
            Ok(caller)
        }
        Err(error) => {
            if error.status() == StatusCode::UNAUTHORIZED {
                broker.access.limits.count_failure(origin.address).await?;
            }
            Err(error)
        }
    }
}

/// Authenticates the credential. Streams repeat this while they are open.
pub async fn authenticate(broker: &Broker, headers: &HeaderMap, origin: &Origin) -> ApiResult<Caller> {
    let credential = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")))
        .map(str::trim)
        .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "request has no credential"))?;
    if credential.starts_with("brk_") {
        return Ok(Caller::Token(token(broker, credential, origin).await?));
    }
    Ok(Caller::Agent(agent(broker, headers, credential, origin).await?))
}

async fn token(broker: &Broker, credential: &str, origin: &Origin) -> ApiResult<Arc<WhoAmI>> {
    let secret = Secret::read(SecretKind::ApiToken, credential).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1001, "the token is malformed: its checksum does not match")
    })?;
    let refused = || ApiError::new(ErrorCode::BRK1001, "the token is unknown, revoked or expired");
    let admit = broker.access.limits.admit_lookup(origin.address);
    let who = broker.access.tokens.find(&broker.pool, secret.hash(), admit).await?.ok_or_else(refused)?;
    if who.expires_at.is_some_and(|at| at <= Timestamp::now()) {
        let expired = RefusalReason::CredentialExpired;
        note_refused(broker, &Caller::Token(who), origin, StatusCode::UNAUTHORIZED, expired);
        return Err(refused());
    }
    Ok(who)
}

/// Returns the caller acting in the project that the request names. Only roles of the installation may name another
/// project than their own; everyone else gets 404.
async fn acting(broker: &Broker, caller: &Caller, headers: &HeaderMap) -> ApiResult<Caller> {
    let (Caller::Token(token), Some(named)) = (caller, headers.get(header::PROJECT)) else {
        return Ok(caller.clone());
    };
    let missing = || ApiError::not_found("project");
    let named = named.to_str().map_err(|_| missing())?;
    if named == token.project {
        return Ok(caller.clone());
    }
    let allowed =
        token.role.is_over_installation() && broker.access.tokens.project_exists(&broker.pool, named).await?;
    if !allowed {
        return Err(missing());
    }
    Ok(Caller::Token(Arc::new(WhoAmI { project: named.to_owned(), ..WhoAmI::clone(token) })))
}

async fn agent(
    broker: &Broker,
    headers: &HeaderMap,
    credential: &str,
    origin: &Origin,
) -> ApiResult<AgentCaller> {
    let verify = async || {
        let (now, limits) = (Timestamp::now().as_second(), &broker.access.limits);
        let admit = limits.admit_lookup(origin.address);
        broker.access.assertions.verify(&broker.index, &broker.pool, credential, now, admit).await
    };
    let mut verdict = verify().await;
    if let (Err(BadAssertion::UnknownAgent(_)), Some(wanted)) = (&verdict, position(headers)?) {
        // The agent may have joined at another replica a moment ago. Anyone can claim any position, so an
        // unknown agent does not put the installation on hold, and an address that fails too often does not wait.
        broker.access.limits.check_address(origin.address).await?;
        if broker.progress(wanted).await == Progress::Behind {
            return Err(broker.behind(wanted));
        }
        verdict = verify().await;
    }
    if let Some((claimed, because)) = verdict.as_ref().err().and_then(BadAssertion::claims) {
        broker.presence.refused(claimed, because);
    }
    verdict.map_err(|error| match error {
        BadAssertion::Store(error) => error.into(),
        BadAssertion::NotAdmitted(error) => *error,
        error => ApiError::new(ErrorCode::BRK1001, error.to_string()).because(error),
    })
}

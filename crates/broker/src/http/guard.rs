//! The middleware of every route: authenticates the caller and checks its permission.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use brokkr_api::ErrorCode;
use brokkr_api::audit::AuditKind;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::header;
use brokkr_api::tokens::WhoAmI;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;

use super::headers::position;
use super::signed_body;
use crate::access::Permission;
use crate::access::assertion::{BadAssertion, OTHER_REQUEST};
use crate::access::binding::Purpose;
use crate::access::caller::{AgentCaller, Caller};
use crate::access::limits::Bucket;
use crate::access::origin::Origin;
use crate::access::permission::allow;
use crate::access::secret::{Secret, SecretKind};
use crate::domain::audit::AuditRecord;
use crate::error::{ApiError, ApiResult, ProblemReport};
use crate::state::{Broker, Progress};

pub async fn guard(
    State((broker, permission, bucket)): State<(Arc<Broker>, Permission, Bucket)>,
    parameters: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> ApiResult {
    let origin = Origin::of(request.extensions())?;
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
    let purpose = Purpose::of(request.method(), request.uri(), request.headers());
    // Boxed, so that it takes no memory while a poll waits.
    let (caller, body_digest) =
        Box::pin(identify(&broker, request.headers(), purpose, &origin, bucket)).await?;
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
    if let Some(digest) = body_digest {
        request = request.map(|body| signed_body::expect(body, digest));
    }
    let mut response = next.run(request).await;
    match response.extensions().get::<ProblemReport>().map(|trouble| trouble.problem.code) {
        Some(ErrorCode::BRK1002) => note_refused(&broker, &caller, &origin, response.status()),
        // The body differs: as in `identify`, which cannot know it yet.
        Some(ErrorCode::BRK1010) => {
            if let Caller::Agent(agent) = &caller {
                broker.presence.refused(agent.id, OTHER_REQUEST);
            }
            Box::pin(broker.access.limits.count_failure(origin.address)).await?;
        }
        _ => {}
    }
    response.extensions_mut().insert(caller);
    Ok(response)
}

/// Queues an audit entry for a refused request. A server error, such as an unreachable database, is not a
/// refusal.
fn note_refused(broker: &Broker, caller: &Caller, origin: &Origin, status: StatusCode) {
    if status.is_client_error() {
        broker.refusals.push(AuditRecord::new(AuditKind::Refused, Some(caller), origin, status));
    }
}

/// Authenticates the caller and applies its rate limit. Only failures are counted by address: many agents may share one.
async fn identify(
    broker: &Broker,
    headers: &HeaderMap,
    purpose: Purpose<'_>,
    origin: &Origin,
    bucket: Bucket,
) -> ApiResult<(Caller, Option<Checksum>)> {
    match authenticate(broker, headers, purpose, origin).await {
        Ok((caller, body_digest)) => {
            broker.access.limits.check_caller(bucket, &caller).await?;
            Ok((caller, body_digest))
        }
        Err(error) => {
            if error.status() == StatusCode::UNAUTHORIZED {
                broker.access.limits.count_failure(origin.address).await?;
            }
            Err(error)
        }
    }
}

/// Authenticates the credential. Returns the caller, and the digest that the body of an agent's write must have. Streams
/// repeat this while they are open.
pub async fn authenticate(
    broker: &Broker,
    headers: &HeaderMap,
    purpose: Purpose<'_>,
    origin: &Origin,
) -> ApiResult<(Caller, Option<Checksum>)> {
    let credential = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")))
        .map(str::trim)
        .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "request has no credential"))?;
    if credential.starts_with("brk_") {
        return Ok((Caller::Token(token(broker, credential, origin).await?), None));
    }
    let (agent, body_digest) = agent(broker, headers, credential, purpose).await?;
    Ok((Caller::Agent(agent), body_digest))
}

async fn token(broker: &Broker, credential: &str, origin: &Origin) -> ApiResult<Arc<WhoAmI>> {
    let secret = Secret::read(SecretKind::ApiToken, credential).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1001, "the token is malformed: its checksum does not match")
    })?;
    let refused = || ApiError::new(ErrorCode::BRK1001, "the token is unknown, revoked or expired");
    let who = broker.access.tokens.find(&broker.pool, secret.hash()).await?.ok_or_else(refused)?;
    if who.expires_at.is_some_and(|at| at <= Timestamp::now()) {
        note_refused(broker, &Caller::Token(who), origin, StatusCode::UNAUTHORIZED);
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
    purpose: Purpose<'_>,
) -> ApiResult<(AgentCaller, Option<Checksum>)> {
    let mut verdict = verify(broker, credential, purpose).await;
    if let (Err(BadAssertion::UnknownAgent(_)), Some(wanted)) = (&verdict, position(headers)?) {
        // The agent may have joined at another replica a moment ago. Anyone can claim any position, so an
        // unknown agent does not put the installation on hold.
        if broker.progress(wanted).await == Progress::Behind {
            return Err(broker.behind(wanted));
        }
        verdict = verify(broker, credential, purpose).await;
    }
    if let Some((claimed, because)) = verdict.as_ref().err().and_then(BadAssertion::claims) {
        broker.presence.refused(claimed, because);
    }
    verdict.map_err(|error| match error {
        BadAssertion::Store(error) => error.into(),
        BadAssertion::OtherRequest(_, part) => part.refusal(),
        error @ BadAssertion::NotBound(_) => ApiError::new(ErrorCode::BRK1010, error.to_string()),
        error => ApiError::new(ErrorCode::BRK1001, error.to_string()).because(error),
    })
}

async fn verify(
    broker: &Broker,
    credential: &str,
    purpose: Purpose<'_>,
) -> Result<(AgentCaller, Option<Checksum>), BadAssertion> {
    let (assertions, index, pool) = (&broker.access.assertions, &broker.index, &broker.pool);
    let now = Timestamp::now().as_second();
    match purpose {
        Purpose::Read => Ok((assertions.verify_read(index, pool, credential, now).await?, None)),
        Purpose::Write(head) => {
            let (agent, body) = assertions.verify_write(index, pool, credential, &head, now).await?;
            Ok((agent, Some(body)))
        }
    }
}

//! The middleware of every route: authenticates the caller and checks its permission.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::ErrorCode;
use brokkr_api::audit::RefusalReason;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::header;
use brokkr_api::tokens::WhoAmI;
use http::header::{AUTHORIZATION, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;

use super::body::BodyLimit;
use super::signed_body;
use crate::access::Permission;
use crate::access::assertion::{BadAssertion, OTHER_REQUEST};
use crate::access::binding::Purpose;
use crate::access::caller::{AgentCaller, Caller};
use crate::access::limits::Bucket;
use crate::access::origin::Origin;
use crate::access::permission::allow;
use crate::access::same_origin::{self, NotSameOrigin};
use crate::access::secret::{Secret, SecretKind};
use crate::access::sessions::{SessionCookie, check_recent};
use crate::domain::audit::AuditRecord;
use crate::error::{ApiError, ApiResult, ProblemReport};
use crate::state::Broker;

/// The properties of a route that the guard needs.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    pub permission: Permission,
    pub bucket: Bucket,
    pub body: BodyLimit,
    /// Whether a session may use it only for a while after the sign-in.
    pub needs_recent_sign_in: bool,
}

impl RouteRules {
    /// Returns whether a browser may call the route with the cookie of a session. Routes of agents never take cookies.
    fn takes_cookies(&self) -> bool {
        self.permission != Permission::Agent && self.bucket != Bucket::Polling
    }
}

pub async fn guard(
    State((broker, rules)): State<(Arc<Broker>, RouteRules)>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    // Any other request has a credential of its own, or needs none.
    let has_session =
        rules.permission != Permission::Public && !request.headers().contains_key(AUTHORIZATION);
    let mut response = admit(broker, rules, parameters, request, next, has_session).await.into_response();
    if has_session {
        keep_private(response.headers_mut());
    }
    response
}

/// Passes the request on if its caller has the permission.
async fn admit(
    broker: Arc<Broker>,
    rules: RouteRules,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
    has_session: bool,
) -> ApiResult {
    let RouteRules { permission, bucket, body, needs_recent_sign_in } = rules;
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
    let purpose = Purpose::of(request.method(), request.uri(), request.headers());
    // Boxed, so that it takes no memory while a poll waits.
    let Authenticated { caller, body_digest, opened_at } =
        Box::pin(identify(&broker, request.headers(), purpose, &origin, rules)).await?;
    let named = parameters.as_ref().ok().and_then(|parameters| {
        parameters.iter().find_map(|(name, value)| (name == "agent").then(|| value.to_owned()))
    });
    let reading = request.method() == Method::GET;
    let from_console = match (has_session, reading) {
        (false, _) => Ok(()),
        (true, true) => same_origin::check_read(request.headers()),
        (true, false) => same_origin::check(request.uri(), request.headers()),
    };
    let from_console = from_console.map_err(NotSameOrigin::refusal);
    let admitted = from_console
        .and_then(|()| allow(permission, &caller, named.as_deref(), reading))
        .and_then(|()| match opened_at {
            Some(at) if needs_recent_sign_in => check_recent(at, Timestamp::now()),
            _ => Ok(()),
        });
    let admitted = match admitted {
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
    if let Some(digest) = body_digest {
        request = request.map(|body| signed_body::expect(body, digest));
    }
    let mut response = next.run(request).await;
    if let Some(trouble) = response.extensions().get::<ProblemReport>() {
        if let Some(reason) = trouble.refusal {
            note_refused(&broker, &caller, &origin, response.status(), reason);
        }
        // The body differs: as in `identify`, which cannot know it yet.
        if trouble.problem.code == ErrorCode::BRK1010 {
            if let Caller::Agent(agent) = &caller {
                broker.presence.refused(agent.id, OTHER_REQUEST);
            }
            Box::pin(broker.access.limits.count_failure(origin.address)).await?;
        }
    }
    response.extensions_mut().insert(caller);
    Ok(response)
}

/// Keeps the response to a request with a cookie out of caches, which would give it to the next user of the browser, and out of
/// pages of other origins.
fn keep_private(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(policy, HeaderValue::from_static("same-origin"));
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

/// Who sent a request, by its credential.
#[derive(Debug)]
pub struct Authenticated {
    pub caller: Caller,
    /// The digest that the body of an agent's write must have.
    body_digest: Option<Checksum>,
    /// When the session was opened, if the credential is one.
    opened_at: Option<Timestamp>,
}

impl Authenticated {
    fn with_token(token: Arc<WhoAmI>, opened_at: Option<Timestamp>) -> Self {
        Self { caller: Caller::Token(token), body_digest: None, opened_at }
    }
}

/// Authenticates the caller and applies its rate limit. Only failures are counted by address: many agents may share one.
async fn identify(
    broker: &Broker,
    headers: &HeaderMap,
    purpose: Purpose<'_>,
    origin: &Origin,
    rules: RouteRules,
) -> ApiResult<Authenticated> {
    let identified = if rules.takes_cookies() || headers.contains_key(AUTHORIZATION) {
        authenticate(broker, headers, purpose, origin).await
    } else {
        Err(no_credential())
    };
    match identified {
        Ok(authenticated) => {
            broker.access.limits.check_caller(rules.bucket, &authenticated.caller).await?;
            Ok(authenticated)
        }
        Err(error) => {
            if error.status() == StatusCode::UNAUTHORIZED {
                broker.access.limits.count_failure(origin.address).await?;
            }
            Err(error)
        }
    }
}

/// Authenticates the credential: that in `Authorization`, or without this header the session in the cookie. Streams repeat this while
/// they are open.
pub async fn authenticate(
    broker: &Broker,
    headers: &HeaderMap,
    purpose: Purpose<'_>,
    origin: &Origin,
) -> ApiResult<Authenticated> {
    match SessionCookie::of(headers) {
        SessionCookie::Secret(secret) => {
            let (token, opened_at) = session(broker, &secret, origin).await?;
            return Ok(Authenticated::with_token(token, Some(opened_at)));
        }
        SessionCookie::Malformed => {
            return Err(ApiError::new(ErrorCode::BRK1001, "the cookie of the session is malformed"));
        }
        SessionCookie::Absent => {}
    }
    let credential = bearer(headers).ok_or_else(no_credential)?;
    if credential.starts_with("brk_") {
        return Ok(Authenticated::with_token(token(broker, credential, origin).await?, None));
    }
    let (agent, body_digest) = agent(broker, credential, purpose, origin).await?;
    Ok(Authenticated { caller: Caller::Agent(agent), body_digest, opened_at: None })
}

/// Returns the credential in `Authorization`.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")).map(str::trim)
}

fn no_credential() -> ApiError {
    ApiError::new(ErrorCode::BRK1001, "request has no credential")
}

/// Returns the owner of the session's token, and when the session was opened.
async fn session(broker: &Broker, secret: &Secret, origin: &Origin) -> ApiResult<(Arc<WhoAmI>, Timestamp)> {
    let ended = || ApiError::new(ErrorCode::BRK1001, "the session has ended; sign in again");
    let admit = broker.access.limits.admit_lookup(origin.address);
    let session = broker.access.sessions.find(&broker.pool, secret.hash(), admit).await?.ok_or_else(ended)?;
    if session.ends_at <= Timestamp::now() {
        return Err(ended());
    }
    Ok((valid_token(broker, session.token_hash, origin).await?, session.opened_at))
}

async fn token(broker: &Broker, credential: &str, origin: &Origin) -> ApiResult<Arc<WhoAmI>> {
    let secret = Secret::read(SecretKind::ApiToken, credential).ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1001, "the token is malformed: its checksum does not match")
    })?;
    valid_token(broker, secret.hash(), origin).await
}

/// Returns the owner of the token with this hash.
async fn valid_token(broker: &Broker, hash: [u8; 32], origin: &Origin) -> ApiResult<Arc<WhoAmI>> {
    let refused = || ApiError::new(ErrorCode::BRK1001, "the token is unknown, revoked or expired");
    let admit = broker.access.limits.admit_lookup(origin.address);
    let who = broker.access.tokens.find(&broker.pool, hash, admit).await?.ok_or_else(refused)?;
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
    credential: &str,
    purpose: Purpose<'_>,
    origin: &Origin,
) -> ApiResult<(AgentCaller, Option<Checksum>)> {
    let mut verdict = verify(broker, credential, purpose, origin).await;
    if matches!(verdict, Err(BadAssertion::UnknownAgent(_))) {
        // P15: the agent may have joined at another replica a moment ago. Only the database can say that it does not
        // exist; an address that fails too often does not wait for that.
        let permit = broker.access.limits.admit_wait(origin.address).await?;
        let current = broker.index_is_current().await;
        drop(permit);
        if current.is_err() {
            // A wait that ends without a result is expensive, so it counts as a failure.
            broker.access.limits.count_failure(origin.address).await?;
        }
        current?;
        verdict = verify(broker, credential, purpose, origin).await;
    }
    if let Some((claimed, because)) = verdict.as_ref().err().and_then(BadAssertion::claims) {
        broker.presence.refused(claimed, because);
    }
    verdict.map_err(|error| match error {
        BadAssertion::Store(error) => error.into(),
        BadAssertion::NotAdmitted(error) => *error,
        BadAssertion::OtherRequest(_, part) => part.refusal(),
        error @ BadAssertion::NotBound(_) => ApiError::new(ErrorCode::BRK1010, error.to_string()),
        error => ApiError::new(ErrorCode::BRK1001, error.to_string()).because(error),
    })
}

async fn verify(
    broker: &Broker,
    credential: &str,
    purpose: Purpose<'_>,
    origin: &Origin,
) -> Result<(AgentCaller, Option<Checksum>), BadAssertion> {
    let (assertions, index, pool) = (&broker.access.assertions, &broker.index, &broker.pool);
    let now = Timestamp::now().as_second();
    let admit = broker.access.limits.admit_lookup(origin.address);
    match purpose {
        Purpose::Read => Ok((assertions.verify_read(index, pool, credential, now, admit).await?, None)),
        Purpose::Write(head) => {
            let (agent, body) = assertions.verify_write(index, pool, credential, &head, now, admit).await?;
            Ok((agent, Some(body)))
        }
    }
}

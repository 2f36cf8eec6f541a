//! Sessions of the console: opened with an API token, then authenticated by a cookie.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::page::{LARGEST_PAGE, Page};
use brokkr_api::sessions::{ConsoleSession, HoldNotice, SessionDetails};
use brokkr_api::tokens::{Role, WhoAmI};
use brokkr_api::{ErrorCode, SessionId, TokenId};
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

use crate::access::Caller;
use crate::access::same_origin::{NotSameOrigin, check_sign_in};
use crate::access::secret::{Secret, SecretKind};
use crate::access::sessions::{SessionCookie, delete_cookie, set_cookie};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::guard::bearer;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::write::{self, ResultStorage};
use crate::state::Broker;
use crate::store::projects::project_list;
use crate::store::sessions::{
    NewSession, SessionKey, session_delete_on_conn, session_delete_surplus_on_conn, session_fetch,
    session_insert_on_conn, session_list,
};

/// A token has at most this many sessions: the next one closes the one that was not used for longest.
const SESSIONS_OF_TOKEN: i64 = 50;
/// Names the session that the request is authenticated with.
const CURRENT: &str = "current";

/// Open a session for a browser.
///
/// The request has an API token in `Authorization`, and the header `brokkr-console: 1`. The response sets the cookie
/// `__Host-brokkr`, which scripts cannot read; with it, requests need no other credential. A session ends after an hour
/// without use, after 12 hours, and with its token. Each call opens a new session: `Idempotency-Key` is ignored.
#[utoipa::path(post, path = "/api/v1/sessions", tag = "sessions",
    params(("brokkr-console" = String, Header, description = "`1`")),
    responses((status = 201, body = SessionDetails)))]
pub async fn open_console_session(State(broker): BrokerState, uri: Uri, change: Change) -> ApiResult {
    check_sign_in(&uri, &change.headers).map_err(NotSameOrigin::refusal)?;
    let token = bearer(&change.headers).and_then(|text| Secret::read(SecretKind::ApiToken, text));
    // A session that could open another one would never end.
    let token = token.ok_or_else(|| {
        ApiError::new(ErrorCode::BRK1002, "a session is opened with an API token, not with another session")
    })?;
    let caller = change.caller()?.token()?;
    let projects = projects(&broker, caller.role, &caller.project).await?;
    // A stored result has no cookie.
    let change = Change { key: None, ..change };
    let secret = Secret::generate(SecretKind::Session);
    let mut response = write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let new = NewSession { id: SessionId::generate(), hash: &secret.hash(), token_hash: &token.hash() };
        let session = session_insert_on_conn(write.conn(), new)
            .await?
            .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "the token is unknown, revoked or expired"))?;
        session_delete_surplus_on_conn(write.conn(), &session, SESSIONS_OF_TOKEN - 1).await?;
        tracing::info!(session_id = %session.id, token_id = %session.token_id, "session opened");
        write.finish(StatusCode::CREATED, &details(&broker, session, projects)).await
    })
    .await?;
    response.headers_mut().insert(SET_COOKIE, set_cookie(&secret));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// List the open sessions of the caller's token, oldest first.
///
/// Admins and auditors see the sessions of all tokens.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", params(Paging),
    responses((status = 200, body = Page<ConsoleSession>)))]
pub async fn list_console_sessions(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<ConsoleSession>>> {
    let (after, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let sessions = session_list(&broker.pool, visible(caller.token()?), after, limit).await?;
    Ok(Json(Page::cut(sessions, limit, |session| session.id.to_string())))
}

/// Get an open session, and the projects in which it may act.
#[utoipa::path(get, path = "/api/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Id, or `current` for the session of the request")),
    responses((status = 200, body = SessionDetails)))]
pub async fn get_console_session(
    State(broker): BrokerState,
    caller: Caller,
    Path(session): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Json<SessionDetails>> {
    let key = key(&session, &headers)?;
    let session = session_fetch(&broker.pool, visible(caller.token()?), key).await?.ok_or_else(missing)?;
    let projects = projects(&broker, session.role, &session.project).await?;
    Ok(Json(details(&broker, session, projects)))
}

/// Close a session.
///
/// Its requests are refused, and its streams end, within seconds. Callers close sessions of their own token, admins any.
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "Id, or `current` for the session of the request")),
    responses((status = 204, description = "Closed")))]
pub async fn close_console_session(
    State(broker): BrokerState,
    Path(session): Path<String>,
    change: Change,
) -> ApiResult {
    let key = key(&session, &change.headers)?;
    let token = change.caller()?.token()?;
    let closable = (token.role != Role::Admin).then_some(token.token_id);
    let current = current(&change.headers);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let (id, hash) = session_delete_on_conn(write.conn(), closable, key).await?.ok_or_else(missing)?;
        let mut response = write.finish_empty().await?;
        broker.access.sessions.refuse(&hash).await;
        tracing::info!(session_id = %id, "session closed");
        if current.is_some_and(|current| current[..] == hash[..]) {
            forget_in_browser(&mut response);
        }
        Ok(response)
    })
    .await
}

/// Returns the token of which the caller sees sessions; none for all tokens.
fn visible(caller: &WhoAmI) -> Option<TokenId> {
    (!caller.role.is_over_installation()).then_some(caller.token_id)
}

fn missing() -> ApiError {
    ApiError::not_found("session")
}

fn key(named: &str, headers: &HeaderMap) -> ApiResult<SessionKey> {
    if named == CURRENT {
        return current(headers).map(SessionKey::Hash).ok_or_else(missing);
    }
    named.parse().map(SessionKey::Id).map_err(|_| missing())
}

/// Returns the hash of the session that the request is authenticated with, if it is.
fn current(headers: &HeaderMap) -> Option<[u8; 32]> {
    match SessionCookie::of(headers) {
        SessionCookie::Secret(secret) => Some(secret.hash()),
        SessionCookie::Absent | SessionCookie::Malformed => None,
    }
}

/// Returns the names of the projects in which a caller with this role and project may act.
async fn projects(broker: &Broker, role: Role, project: &str) -> ApiResult<Vec<String>> {
    if !role.is_over_installation() {
        return Ok(vec![project.to_owned()]);
    }
    let limit = LARGEST_PAGE as usize;
    let projects = project_list(&broker.pool, None, None, limit).await?;
    Ok(projects.into_iter().take(limit).map(|project| project.name.to_string()).collect())
}

fn details(broker: &Broker, session: ConsoleSession, projects: Vec<String>) -> SessionDetails {
    // Without its cause, which may name the token of another project.
    let hold = broker.restore.hold().map(|hold| HoldNotice { since: hold.since, because: hold.because });
    SessionDetails { session, projects, server_version: env!("CARGO_PKG_VERSION").to_owned(), hold }
}

/// Has the browser delete the cookie, and what the console has stored.
fn forget_in_browser(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(SET_COOKIE, delete_cookie());
    let clear = HeaderName::from_static("clear-site-data");
    headers.insert(clear, HeaderValue::from_static("\"storage\""));
}

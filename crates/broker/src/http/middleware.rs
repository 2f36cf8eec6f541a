//! The outermost middleware: request id, log line, traces, and the body of problem documents.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::ErrorCode;
use brokkr_api::protocol::header::REQUEST_ID;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tracing::Instrument as _;
use uuid::Uuid;

use super::agents::target_state;
use crate::access::Caller;
use crate::access::origin::{Origin, Peer, address};
use crate::error::{ApiError, ProblemReport};
use crate::http::BrokerState;
use crate::state::long_poll::PollResult;
use crate::telemetry;

pub async fn request_scope(State(broker): BrokerState, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("", |path| path.as_str()).to_owned();
    let peer = request.extensions().get::<Peer>();
    let origin = Origin {
        request_id: id.clone(),
        method: method.clone(),
        route: route.clone(),
        path: request.uri().path().to_owned(),
        address: peer.map(|Peer(peer)| address(*peer, request.headers(), &broker.access.trusted_proxies)),
    };
    request.extensions_mut().insert(Arc::new(origin));
    // Fifty thousand polls wait for a long time: their spans exist only at debug level.
    let span = if method == Method::GET {
        tracing::debug_span!("request", id, %method, route)
    } else {
        tracing::info_span!("request", id, %method, route)
    };
    // Polls are too frequent and too uniform to be traced.
    let trace = if route == target_state::ROUTE {
        tracing::Span::none()
    } else {
        telemetry::of_request(&method, &route, &id, request.headers())
    };
    let mut response = next.run(request).instrument(span).instrument(trace.clone()).await;
    trace.record("http.response.status_code", response.status().as_u16());
    // The poll waits in the listener and is counted when it is answered.
    if matches!(response.extensions().get(), Some(PollResult::Parked(_))) {
        return response;
    }
    broker.metrics.answered(&route, &method, response.status(), started.elapsed());
    let trouble = response.extensions_mut().remove::<ProblemReport>();
    // The listener reads the caller as well.
    let caller = response.extensions().get::<Caller>().map(Caller::principal);
    let line = Line { id: &id, method: &method, route: &route, caller: caller.as_deref(), started };
    line.log(response.status(), trouble.as_ref());
    if let Some(ProblemReport { mut problem, .. }) = trouble {
        problem.request_id.clone_from(&id);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        *response.body_mut() = Body::from(body);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Returns the caller's request id if it is safe to log, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| Uuid::now_v7().to_string(), ToOwned::to_owned)
}

struct Line<'a> {
    id: &'a str,
    method: &'a Method,
    route: &'a str,
    caller: Option<&'a str>,
    started: Instant,
}

impl Line<'_> {
    fn log(&self, status: StatusCode, trouble: Option<&ProblemReport>) {
        let (id, method, route, caller) = (self.id, self.method, self.route, self.caller);
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let status = status.as_u16();
        macro_rules! log {
            ($level:ident, $($fields:tt)+) => {
                tracing::$level!(request_id = id, %method, route, caller, status, millis, $($fields)+)
            };
        }
        match trouble {
            Some(ProblemReport { problem, cause, .. }) => {
                let (code, detail, cause) = (problem.code, &problem.detail, cause.as_deref().map(chain));
                if problem.status >= 500 {
                    log!(error, %code, detail, cause, "request failed");
                } else {
                    log!(info, %code, detail, cause, "request refused");
                }
            }
            // Reads are logged at debug level: polls would drown everything else.
            None if method == Method::GET => log!(debug, "request completed"),
            None => log!(info, "request completed"),
        }
    }
}

/// Returns the error and its sources in one line.
fn chain(error: &(dyn Error + Send + Sync)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Responds to an unknown path.
pub async fn unknown_route() -> ApiError {
    ApiError::not_found("route")
}

/// Responds to an unsupported method.
pub async fn unknown_method() -> ApiError {
    ApiError::invalid_request("this route does not support the method")
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}

/// Responds to a panic of a handler: it ends the request, not the process.
pub fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    let cause: Arc<dyn Error + Send + Sync> = Arc::from(Box::<dyn Error + Send + Sync>::from(text));
    let mut response = ApiError::new(ErrorCode::BRK9001, "the request failed").into_response();
    if let Some(trouble) = response.extensions_mut().get_mut::<ProblemReport>() {
        trouble.cause = Some(cause);
    }
    response
}

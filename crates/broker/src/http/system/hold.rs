//! Around every route, inside its guard: while on hold, people change nothing that agents are told of.
//!
//! Agents pass: what they hold and report is what has to be known. A route that is new is refused by default.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::access::Caller;
use crate::state::Broker;
use crate::domain::hold::is_allowed_on_hold;
use crate::error::ApiError;

pub async fn unless_held(
    State(broker): State<Arc<Broker>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let person = matches!(request.extensions().get(), Some(Caller::Token(_)));
    if person
        && !is_allowed_on_hold(request.method(), request.uri().path())
        && broker.restore.hold().is_some()
    {
        return Err(broker.held());
    }
    Ok(next.run(request).await)
}

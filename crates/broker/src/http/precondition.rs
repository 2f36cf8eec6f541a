//! `If-Match`: a change that is applied only if the resource has not changed since the caller read it.

use axum::response::{IntoResponse as _, Response};
use brokkr_api::ErrorCode;
use brokkr_api::protocol::same_etag;
use brokkr_api::stacks::Stack;
use http::HeaderMap;
use http::header::{ETAG, IF_MATCH};
use serde::Serialize;
use utoipa::IntoParams;

use super::change::Change;
use super::headers::text;
use super::stacks::changed_stack;
use super::write::{Write, digest};
use crate::error::{ApiError, ApiResult};
use crate::store::stacks::LockedStack;

/// Documents the header in OpenAPI.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatch {
    /// The tag of the resource as it was read; the request is refused if it has changed since.
    #[param(rename = "If-Match")]
    _if_match: Option<String>,
}

/// Returns the tag of a representation.
pub fn etag(shown: &impl Serialize) -> String {
    format!("\"{}\"", digest(shown))
}

/// Responds with the stack and its tag.
pub fn tagged(shown: &Stack) -> Response {
    let tag = etag(&tagged_part(shown.clone()));
    let mut response = axum::Json(shown).into_response();
    response.headers_mut().insert(ETAG, text(&tag));
    response
}

/// Returns what the tag of a stack depends on: not how far its rollout is, because no request changes that.
fn tagged_part(stack: Stack) -> Stack {
    Stack { base_sequence_id: None, ..stack }
}

/// Refuses the request if `If-Match` does not name the current representation.
pub fn check(headers: &HeaderMap, now: &impl Serialize) -> ApiResult<()> {
    let mut tags = headers
        .get_all(IF_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .peekable();
    if tags.peek().is_none() {
        return Ok(());
    }
    let tag = etag(now);
    if tags.any(|given| given.trim() == "*" || same_etag(given, &tag)) {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::BRK2012, "the resource was changed since it was read"))
}

/// Checks `If-Match` for a locked stack that gets new content.
pub async fn stack(write: &mut Write, change: &Change, locked: &LockedStack) -> ApiResult<()> {
    if !change.headers.contains_key(IF_MATCH) {
        return Ok(());
    }
    check(&change.headers, &tagged_part(changed_stack(write, locked).await?))
}

/// Checks `If-Match` for a change of the stack itself, and records the stack for the audit log.
pub async fn stack_itself(write: &mut Write, change: &Change, locked: &LockedStack) -> ApiResult<()> {
    let now = changed_stack(write, locked).await?;
    write.audit_before(&now);
    check(&change.headers, &tagged_part(now))
}

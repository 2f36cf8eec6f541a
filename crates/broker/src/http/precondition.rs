//! `If-Match`: a change that is made only if nothing else was changed since the caller looked.

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
use super::write::{Write, digest};
use crate::error::ApiError;
use crate::store::stacks::{LockedStack, StackRef, stack_fetch};

/// How the header is documented.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatch {
    /// The tag of what was read before; if it has changed since, nothing is done.
    #[param(rename = "If-Match")]
    _if_match: Option<String>,
}

/// The tag of a representation.
pub fn etag(shown: &impl Serialize) -> String {
    format!("\"{}\"", digest(shown))
}

/// The representation with its tag.
pub fn tagged<T: Serialize>(shown: &T) -> Response {
    let tag = etag(shown);
    let mut response = axum::Json(shown).into_response();
    response.headers_mut().insert(ETAG, text(&tag));
    response
}

/// Refuses unless the caller has seen this very representation, or has not asked for that.
pub fn check(headers: &HeaderMap, now: &impl Serialize) -> Result<(), ApiError> {
    let mut wanted = headers
        .get_all(IF_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .peekable();
    if wanted.peek().is_none() {
        return Ok(());
    }
    let tag = etag(now);
    if wanted.any(|wanted| wanted.trim() == "*" || same_etag(wanted, &tag)) {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::BRK2012, "it was changed since it was read"))
}

/// As [`check`], for a stack whose row is locked and whose content is replaced.
pub async fn stack(write: &mut Write<'_>, change: &Change, locked: &LockedStack) -> Result<(), ApiError> {
    if !change.headers.contains_key(IF_MATCH) {
        return Ok(());
    }
    check(&change.headers, &shown(write, locked).await?)
}

/// The same, for changes of the stack itself: what it was goes into the audit log.
pub async fn stack_itself(
    write: &mut Write<'_>,
    change: &Change,
    locked: &LockedStack,
) -> Result<(), ApiError> {
    let now = shown(write, locked).await?;
    write.was(&now);
    check(&change.headers, &now)
}

async fn shown(write: &mut Write<'_>, locked: &LockedStack) -> Result<Stack, ApiError> {
    let now = stack_fetch(write.conn(), &locked.project, &StackRef::Id(locked.id)).await?;
    now.ok_or_else(|| ApiError::not_found("stack"))
}

//! The extractor of a request that changes something: its body is read in full (`body.rs`).

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use brokkr_api::names::{BadLabel, check_annotations, check_labels};
use brokkr_api::protocol::header;
use brokkr_api::{ErrorCode, Labels};
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use sha2::{Digest as _, Sha256};

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::{ApiError, ApiResult};
use crate::http::body::{BodyLimit, body_error, read_body};
use crate::metrics::RefusedBody;
use crate::state::Broker;

const LONGEST_KEY: usize = 255;
const LONGEST_REASON: usize = 500;

#[derive(Debug)]
pub struct Change {
    /// None only on the public route, where the body holds the credential.
    pub caller: Option<Caller>,
    pub origin: Arc<Origin>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub key: Option<String>,
    /// The digest of method, path, query, body, message and commit: the same key with another digest is another request.
    pub digest: [u8; 32],
}

impl Change {
    pub fn caller(&self) -> ApiResult<&Caller> {
        self.caller.as_ref().ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "request is not authenticated"))
    }

    pub fn json<T: DeserializeOwned>(&self) -> ApiResult<T> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::invalid_request(describe(&error)))
    }

    /// Reads the body as JSON; an empty body is the default.
    pub fn json_or_default<T: DeserializeOwned + Default>(&self) -> ApiResult<T> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }
}

/// Checks the labels and annotations of a change, where they are given.
pub fn check_metadata(labels: Option<&Labels>, annotations: Option<&Labels>) -> ApiResult<()> {
    let invalid = |error: BadLabel| ApiError::invalid_request(error.to_string());
    labels.map_or(Ok(()), check_labels).map_err(invalid)?;
    annotations.map_or(Ok(()), check_annotations).map_err(invalid)
}

/// Returns the reason that the caller gave for a change that needs one.
pub fn check_reason(reason: &str) -> ApiResult<&str> {
    let reason = reason.trim();
    if reason.is_empty() || reason.len() > LONGEST_REASON {
        return Err(ApiError::invalid_request(format!("reason must have 1 to {LONGEST_REASON} bytes")));
    }
    Ok(reason)
}

/// Says where the body is invalid, without quoting it: it may contain a secret, and problems are logged.
fn describe(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Io => "cannot read it",
        Category::Syntax => "it is not JSON",
        Category::Data => "unexpected or missing field or value",
        Category::Eof => "unexpected end",
    };
    format!("invalid body: {what} at line {} column {}", error.line(), error.column())
}

impl FromRequest<Arc<Broker>> for Change {
    type Rejection = ApiError;

    async fn from_request(request: Request, broker: &Arc<Broker>) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, broker).await.ok();
        if parts.headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
            return Err(ApiError::invalid_request("send the body uncompressed")
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let origin = Origin::of(&parts.extensions)?;
        let key = key(&parts.headers)?;
        // A route without a guard has no limit, and accepts no body.
        let limit = parts.extensions.get().copied().unwrap_or(BodyLimit(0));
        let buffer = broker.bodies.buffer(limit.0, caller.is_some());
        let body = match read_body(body, limit, buffer).await {
            Ok(body) => body,
            Err(refused) => {
                broker.metrics.body_refused(refused);
                // A caller without a credential that keeps a connection and memory for nothing has failed, as with
                // a wrong token. Authenticated callers have their own limits: a bad network of honest agents must
                // not block others behind their address.
                if caller.is_none() && matches!(refused, RefusedBody::Slow | RefusedBody::Truncated) {
                    broker.access.limits.count_failure(origin.address).await?;
                }
                return Err(body_error(refused, limit));
            }
        };
        let mut hash = Sha256::new();
        // The query is part of the request: `?expect=2` confirms something else than `?expect=1`.
        let query = parts.uri.query().unwrap_or_default();
        for part in [parts.method.as_str(), parts.uri.path(), query] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.update(&body);
        // A submission is its body and these headers.
        for name in [header::MESSAGE, header::COMMIT] {
            if let Some(value) = parts.headers.get(name) {
                hash.update([0]);
                hash.update(name);
                hash.update([0]);
                hash.update(value.as_bytes());
            }
        }
        Ok(Self { caller, origin, headers: parts.headers, body, key, digest: hash.finalize().into() })
    }
}

fn key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get(header::IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > LONGEST_KEY {
        return Err(ApiError::invalid_request("an idempotency key must have 1 to 255 visible characters"));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_body_are_described_without_quoting_it() {
        for (body, expected) in [
            ("[\nbrk_secret]", "invalid body: it is not JSON at line 2 column 1"),
            ("[\"brk_secret\"]", "invalid body: unexpected or missing field or value at line 1 column 13"),
            ("[1, ", "invalid body: unexpected end at line 1 column 4"),
        ] {
            assert_eq!(describe(&serde_json::from_str::<Vec<u8>>(body).unwrap_err()), expected);
        }
    }
}

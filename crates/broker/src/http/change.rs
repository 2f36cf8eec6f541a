//! A request that changes something: read in full, under a limit and a deadline, before anything is done.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use brokkr_api::ErrorCode;
use brokkr_api::protocol::{SUBMISSION_BYTES, header};
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use sha2::{Digest as _, Sha256};

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::error::ApiError;
use crate::state::Broker;

/// A body that does not arrive is not waited for.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
const LONGEST_KEY: usize = 255;

#[derive(Debug)]
pub struct Change {
    /// None on the one public route, where the request itself is the credential.
    pub caller: Option<Caller>,
    pub origin: Arc<Origin>,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub key: Option<String>,
    /// Of method, path, body, message and commit: the same key with another digest is another request.
    pub digest: [u8; 32],
}

impl Change {
    pub fn caller(&self) -> Result<&Caller, ApiError> {
        self.caller.as_ref().ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "nobody is known to call"))
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::unreadable(told(&error)))
    }

    /// As `json`, with nothing meaning the default.
    pub fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }
}

/// Where the body is wrong. Never what it says there: that may be a secret, and problems are logged.
fn told(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Io => "it cannot be read",
        Category::Syntax => "it is not JSON",
        Category::Data => "something unexpected, or something missing",
        Category::Eof => "it ends too early",
    };
    format!("the body: {what}, at line {} column {}", error.line(), error.column())
}

impl FromRequest<Arc<Broker>> for Change {
    type Rejection = ApiError;

    async fn from_request(request: Request, broker: &Arc<Broker>) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, broker).await.ok();
        if parts.headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
            return Err(ApiError::unreadable("send the body uncompressed")
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let origin = Origin::of(&parts.extensions)?;
        let key = key(&parts.headers)?;
        let collected = Limited::new(body, SUBMISSION_BYTES).collect();
        let body = match tokio::time::timeout(BODY_DEADLINE, collected).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(ApiError::new(
                    ErrorCode::BRK2006,
                    format!("the body is larger than {SUBMISSION_BYTES} bytes"),
                ));
            }
            Ok(Err(_)) => return Err(ApiError::unreadable("the body was cut off")),
            Err(_) => {
                return Err(ApiError::unreadable("the body did not arrive in time")
                    .with_status(StatusCode::REQUEST_TIMEOUT));
            }
        };
        let mut hash = Sha256::new();
        for part in [parts.method.as_str().as_bytes(), parts.uri.path().as_bytes()] {
            hash.update(part);
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

fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(header::IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > LONGEST_KEY {
        return Err(ApiError::unreadable("an idempotency key is 1 to 255 visible characters"));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_body_is_told_without_what_it_says() {
        for (body, expected) in [
            ("[\nbrk_secret]", "the body: it is not JSON, at line 2 column 1"),
            ("[\"brk_secret\"]", "the body: something unexpected, or something missing, at line 1 column 13"),
            ("[1, ", "the body: it ends too early, at line 1 column 4"),
        ] {
            assert_eq!(told(&serde_json::from_str::<Vec<u8>>(body).unwrap_err()), expected);
        }
    }
}

//! Responses that the proxy makes itself.

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

/// A response that is returned without asking the server.
#[derive(Clone, Debug)]
pub struct CannedResponse {
    pub status: StatusCode,
    pub content_type: &'static str,
    /// Seconds, for the header `Retry-After`.
    pub retry_after: Option<u64>,
    pub body: Bytes,
}

impl CannedResponse {
    /// Returns a `Status` as kube-apiserver returns it for a refused request.
    pub fn refusal(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Self::json(code, body.to_string())
    }

    pub fn json(code: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            content_type: "application/json",
            retry_after: None,
            body: body.into(),
        }
    }

    pub fn conflict() -> Self {
        Self::refusal(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        )
    }

    /// Reports that the requested version is older than what the server still has.
    pub fn gone() -> Self {
        Self::refusal(410, "Expired", "too old resource version")
    }

    /// Refuses as a busy API server does (API Priority and Fairness).
    pub fn too_many(retry_after: u64) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
            "message": "too many requests, please try again later", "reason": "TooManyRequests",
            "details": {"retryAfterSeconds": retry_after},
        });
        Self { retry_after: Some(retry_after), ..Self::json(429, body.to_string()) }
    }

    pub fn internal() -> Self {
        Self::refusal(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
    }

    pub fn unavailable() -> Self {
        Self::refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// Returns what a captive portal returns for every request.
    pub fn html() -> Self {
        Self { content_type: "text/html", ..Self::json(200, "<html><body>Please sign in.</body></html>") }
    }

    /// Returns the watch event with which the server ends a watch on an expired version.
    pub fn gone_line() -> Bytes {
        let status = Self::gone();
        let object: serde_json::Value = serde_json::from_slice(&status.body).unwrap_or_default();
        Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": object})))
    }
}

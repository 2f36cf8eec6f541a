//! What a refusal of the API server means: try again, look again, or stop.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use crate::plan::types::{Failure, FailureClass, Rival};

/// The part of Kubernetes' `Status` that decisions need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

/// `secret` keeps the server's words about a Secret out of reports: they may quote its values.
#[must_use]
pub fn refusal(code: StatusCode, body: &[u8], retry_after: Option<Duration>, secret: bool) -> Failure {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let reason =
        if status.reason.is_empty() { format!("Http{}", code.as_u16()) } else { status.reason.clone() };
    let wait = Duration::from_secs(status.details.retry_after_seconds);
    let message = if secret || status.message.is_empty() {
        format!("the API server answered {code}")
    } else {
        status.message.chars().take(1000).collect()
    };
    Failure {
        class: class(code, &status),
        reason,
        message,
        retry_after: retry_after.or((!wait.is_zero()).then_some(wait)),
    }
}

fn class(code: StatusCode, status: &Status) -> FailureClass {
    let terminating = status.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    match code.as_u16() {
        409 => FailureClass::Conflict,
        429 | 500 | 502 | 503 | 504 => FailureClass::Transient,
        // Rights may be granted, namespaces may finish terminating, kinds may become known.
        403 if terminating => FailureClass::Transient,
        404 => FailureClass::Transient,
        _ if status.message.contains("failed calling webhook") => FailureClass::Transient,
        _ => FailureClass::Permanent,
    }
}

/// The field managers that a refused apply names, with what they hold.
#[must_use]
pub fn rivals(body: &[u8]) -> Vec<Rival> {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let mut rivals: Vec<Rival> = Vec::new();
    for cause in status.details.causes.into_iter().filter(|cause| cause.reason == "FieldManagerConflict") {
        // `conflict with "kubectl-edit" using apps/v1`
        let Some(manager) = cause.message.split('"').nth(1) else { continue };
        match rivals.iter_mut().find(|rival| rival.manager == manager) {
            Some(rival) => rival.fields.push(cause.field),
            None => rivals.push(Rival { manager: manager.to_owned(), fields: vec![cause.field] }),
        }
    }
    rivals
}

#[must_use]
pub fn unreachable(error: &dyn std::fmt::Display) -> Failure {
    Failure {
        class: FailureClass::Transient,
        reason: "ApiServerUnreachable".into(),
        message: format!("the API server could not be reached: {error}"),
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart_narrowly() {
        let class = |code: u16, body: &str| {
            refusal(StatusCode::from_u16(code).unwrap(), body.as_bytes(), None, false).class
        };
        assert_eq!(
            class(422, r#"{"reason":"Invalid","message":"spec.selector: field is immutable"}"#),
            FailureClass::Permanent
        );
        assert_eq!(class(400, "{}"), FailureClass::Permanent);
        assert_eq!(class(403, r#"{"reason":"Forbidden"}"#), FailureClass::Permanent);
        assert_eq!(
            class(403, r#"{"details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#),
            FailureClass::Transient
        );
        assert_eq!(class(409, "{}"), FailureClass::Conflict);
        assert_eq!(class(429, r#"{"details":{"retryAfterSeconds":7}}"#), FailureClass::Transient);
        assert_eq!(class(503, "<html>"), FailureClass::Transient);
        assert_eq!(class(500, r#"{"message":"failed calling webhook \"x\""}"#), FailureClass::Transient);
        let asked =
            refusal(StatusCode::TOO_MANY_REQUESTS, br#"{"details":{"retryAfterSeconds":7}}"#, None, false);
        assert_eq!(asked.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_the_server_says_of_a_secret_is_not_repeated() {
        let body = br#"{"reason":"Invalid","message":"data[k]: Invalid value: hunter2"}"#;
        let failure = refusal(StatusCode::UNPROCESSABLE_ENTITY, body, None, true);
        assert!(!failure.message.contains("hunter2"));
        assert_eq!(failure.reason, "Invalid");
    }
}

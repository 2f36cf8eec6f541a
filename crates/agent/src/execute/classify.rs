//! Classifies refusals of the API server: retry, wait for something, read again, or stop.
//!
//! The class decides what the plan does. The reason and the message name the source: the server's validation,
//! its authorization, a quota, or Brokkr's own fence (its admission policies).

use std::time::Duration;

use brokkr_api::reason::{Message, Reason};
use http::StatusCode;
use serde::Deserialize;

use super::granting::grants_too_much;
use crate::fence;
use crate::model::{Failure, FailureClass, Rival};

const LONGEST_MESSAGE: usize = 1000;

/// The part of Kubernetes' `Status` that decisions need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub kind: String,
    message: String,
    reason: String,
    pub details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Details {
    pub name: String,
    pub kind: String,
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

/// Returns the failure for a refusal. With `secret`, the server's message is left out, because it may quote
/// values.
#[must_use]
pub fn refusal(code: StatusCode, body: &[u8], retry_after: Option<Duration>, secret: bool) -> Failure {
    let status = Status::parse(body);
    let wait = Duration::from_secs(status.details.retry_after_seconds);
    let (class, reason) = classify(code, &status);
    // Messages of the fence never quote values.
    let message = match fence::refusal_message(&status.message) {
        Some(words) => reason.message_with(words),
        None if class == FailureClass::Immutable || matches!(reason, Reason::GrantsTooMuch { .. }) => {
            reason.message()
        }
        None if secret || status.message.is_empty() => {
            Message::new(format!("the API server returned {code}"))
        }
        None => Message::new(&*status.message),
    };
    let retry_after = retry_after.or((!wait.is_zero()).then_some(wait));
    Failure { class, reason, message: message.clipped(LONGEST_MESSAGE), retry_after }
}

/// Returns what a refusal means.
fn classify(code: StatusCode, status: &Status) -> (FailureClass, Reason) {
    use FailureClass::{Conflict, Immutable, Missing, Permanent, Transient};
    let says = |words: &str| status.message.contains(words);
    if let Some(words) = fence::refusal_message(&status.message) {
        // Shortly after the agent has joined, the API server may not know its id yet.
        let class = if words.contains("not known to its fence yet") { Transient } else { Permanent };
        return (class, Reason::Fenced);
    }
    // The server's own word, if no better reason is known.
    let own = || match status.reason.as_str() {
        "" => Reason::HttpStatus { code: code.as_u16() },
        word => Reason::from_kubernetes(word),
    };
    let invalid = || Reason::Invalid { fields: status.fields() };
    match code.as_u16() {
        // Server-side apply refuses a field that the kind does not have with this message.
        500 if says("field not declared in schema") => (Permanent, invalid()),
        _ if says("Request entity too large")
            || says("etcdserver: request is too large")
            || says("Too long:") =>
        {
            (Permanent, Reason::TooLarge)
        }
        // 401: a token that has just expired or was signed with a key that the API server does not know yet.
        401 | 408 | 410 | 429 | 500.. => (Transient, own()),
        // Two writes updated the same quota at the same time: the object is not the problem.
        409 if status.details.kind == "resourcequotas" || says("resourcequotas") => (Transient, own()),
        409 => (Conflict, own()),
        // The object has another uid than the patch: it was deleted and created again.
        422 if status.details.causes.iter().any(|cause| cause.field == "metadata.uid") => (Conflict, own()),
        _ if says("failed calling webhook") || says("conversion webhook") => (Transient, own()),
        _ if says("admission webhook \"") && says("denied the request") => (
            Permanent,
            Reason::WebhookDenied { webhook: quoted_after(&status.message, "admission webhook ") },
        ),
        403 if status.is_terminating() => {
            (Missing, Reason::NamespaceTerminating { namespace: status.namespace() })
        }
        403 if says("exceeded quota") => {
            (Permanent, Reason::QuotaExceeded { quota: word_after(&status.message, "exceeded quota: ") })
        }
        403 if let Some(reason) = grants_too_much(&status.message) => (Permanent, reason),
        403 => (
            Permanent,
            Reason::Forbidden { account: None, verbs: Vec::new(), resource: None, namespace: None },
        ),
        404 if status.details.kind == "namespaces" => {
            (Missing, Reason::NamespaceNotFound { namespace: status.namespace() })
        }
        404 => (Missing, own()),
        413 => (Permanent, Reason::TooLarge),
        _ if says("no matches for kind") => (
            Missing,
            Reason::UnknownKind {
                kind: quoted_after(&status.message, "no matches for kind ").unwrap_or_default(),
            },
        ),
        422 if status.is_about_an_immutable_field() => {
            (Immutable, Reason::Immutable { fields: status.fields() })
        }
        400 | 422 => (Permanent, invalid()),
        _ => (Permanent, own()),
    }
}

/// Returns the quoted text after these words, as in `admission webhook "images.example.com" denied`.
fn quoted_after(message: &str, words: &str) -> Option<String> {
    let (_, rest) = message.split_once(words)?;
    Some(rest.strip_prefix('"')?.split_once('"')?.0.to_owned())
}

/// Returns the word after these words, as in `exceeded quota: few, requested: …`.
fn word_after(message: &str, words: &str) -> Option<String> {
    let (_, rest) = message.split_once(words)?;
    rest.split([',', ' ']).next().filter(|word| !word.is_empty()).map(ToOwned::to_owned)
}

impl Status {
    /// Parses a response. One that is not a `Status`, for example of a proxy, counts as an empty one.
    pub(super) fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Returns the fields that the server complains about.
    fn fields(&self) -> Vec<String> {
        let fields = self.details.causes.iter().map(|cause| cause.field.clone());
        fields.filter(|field| !field.is_empty()).collect()
    }

    /// Returns the namespace, if the refusal is about one.
    fn namespace(&self) -> Option<String> {
        let terminating = self.details.causes.iter().find(|cause| cause.reason == "NamespaceTerminating");
        match terminating {
            // `namespace shop is being terminated`
            Some(cause) => cause.message.split_whitespace().nth(1).map(ToOwned::to_owned),
            None => Some(self.details.name.clone()).filter(|name| !name.is_empty()),
        }
    }

    fn is_terminating(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Returns whether changed immutable fields are the only error. With any other error, recreating the object
    /// would not help.
    fn is_about_an_immutable_field(&self) -> bool {
        let fields: Vec<_> = self.details.causes.iter().filter(|cause| !cause.field.is_empty()).collect();
        !fields.is_empty() && fields.iter().all(|cause| says_immutable(&cause.message))
    }
}

/// Returns whether a message says that a field cannot be changed; Kubernetes has no code for this.
fn says_immutable(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = [
        "immutable",
        "updates to statefulset spec for fields other than",
        "pod updates may not change fields other than",
        "may not be changed",
        "may not change once set",
        "cannot be changed",
        "is forbidden after creation",
        "forbidden: updates to",
    ];
    words.iter().any(|words| message.contains(words))
}

/// Returns the field managers that a refused apply names, with their fields.
#[must_use]
pub fn rivals(body: &[u8]) -> Vec<Rival> {
    let status = Status::parse(body);
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
    Failure::with_words(FailureClass::Transient, Reason::ApiServerUnreachable, error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn classified(code: u16, body: &str) -> (FailureClass, String) {
        let failure = refusal(StatusCode::from_u16(code).unwrap(), body.as_bytes(), None, false);
        (failure.class, failure.reason.code().to_owned())
    }

    /// Bodies from a real API server of 1.36, reduced to the relevant fields.
    #[test]
    fn d2_refusals_are_classified_by_code_reason_and_message() {
        use FailureClass::{Conflict, Immutable, Missing, Permanent, Transient};
        let immutable = json!({"reason": "Invalid", "message": "Deployment.apps \"web\" is invalid: spec.selector: \
            Invalid value: {}: field is immutable", "details": {"causes": [{"reason": "FieldValueInvalid",
            "message": "Invalid value: {}: field is immutable", "field": "spec.selector"}]}});
        let also_wrong = json!({"reason": "Invalid", "message": "Service \"web\" is invalid", "details": {"causes": [
            {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.clusterIPs[0]"},
            {"reason": "FieldValueInvalid", "message": "must be between 1 and 65535", "field": "spec.ports[0].port"}]}});
        let stateful = json!({"details": {"causes": [{"reason": "FieldValueForbidden", "field": "spec", "message":
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals' are forbidden"}]}});
        let no_namespace = json!({"reason": "NotFound", "message": "namespaces \"shop\" not found",
            "details": {"name": "shop", "kind": "namespaces"}});
        let terminating =
            json!({"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}});
        let quota =
            json!({"reason": "Forbidden", "message": "configmaps \"a\" is forbidden: exceeded quota: few"});
        let quota_race = json!({"reason": "Conflict", "message": "Operation cannot be fulfilled on resourcequotas \"few\"",
            "details": {"name": "few", "kind": "resourcequotas"}});
        let fenced = json!({"reason": "Invalid", "message": "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy \
            'brokkr-fence' with binding 'brokkr-fence' denied request: it may not"});
        let other_policy = json!({"reason": "Invalid", "message": "configmaps \"a\" is forbidden: \
            ValidatingAdmissionPolicy 'images' with binding 'images' denied request: it may not"});
        // The webhook chooses the code; the default is 403.
        let webhook = json!({"reason": "Forbidden", "message": "admission webhook \"images.example.com\" denied the request: no"});
        let table = [
            (403, webhook.to_string(), Permanent, "WebhookDenied"),
            (400, webhook.to_string(), Permanent, "WebhookDenied"),
            (422, immutable.to_string(), Immutable, "Immutable"),
            (422, also_wrong.to_string(), Permanent, "Invalid"),
            (422, stateful.to_string(), Immutable, "Immutable"),
            (422, fenced.to_string(), Permanent, "Fenced"),
            (422, other_policy.to_string(), Permanent, "Invalid"),
            (404, no_namespace.to_string(), Missing, "NamespaceNotFound"),
            (404, json!({"reason": "NotFound"}).to_string(), Missing, "NotFound"),
            (404, "404 page not found".into(), Missing, "HttpStatus"),
            (403, terminating.to_string(), Missing, "NamespaceTerminating"),
            (403, quota.to_string(), Permanent, "QuotaExceeded"),
            (403, json!({"reason": "Forbidden"}).to_string(), Permanent, "Forbidden"),
            (400, "{}".into(), Permanent, "Invalid"),
            (413, "{}".into(), Permanent, "TooLarge"),
            (409, quota_race.to_string(), Transient, "Conflict"),
            (409, json!({"reason": "Conflict"}).to_string(), Conflict, "Conflict"),
            (429, json!({"reason": "TooManyRequests"}).to_string(), Transient, "TooManyRequests"),
            (503, "<html>".into(), Transient, "HttpStatus"),
            (401, json!({"reason": "Unauthorized"}).to_string(), Transient, "Unauthorized"),
            (408, String::new(), Transient, "HttpStatus"),
            (410, json!({"reason": "Expired"}).to_string(), Transient, "Expired"),
            (507, String::new(), Transient, "HttpStatus"),
            (500, json!({"message": "etcdserver: request is too large"}).to_string(), Permanent, "TooLarge"),
            (500, json!({"message": "failed calling webhook \"x\""}).to_string(), Transient, "HttpStatus"),
        ];
        for (code, body, class, reason) in table {
            assert_eq!(classified(code, &body), (class, reason.to_owned()), "{code} {body}");
        }
    }

    #[test]
    fn d2_the_server_says_how_long_to_wait() {
        let refused =
            refusal(StatusCode::TOO_MANY_REQUESTS, br#"{"details":{"retryAfterSeconds":7}}"#, None, false);
        assert_eq!(refused.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn the_servers_message_about_a_secret_is_left_out_and_that_of_the_fence_is_kept() {
        let body = br#"{"reason":"Invalid","message":"data[k]: Invalid value: hunter2"}"#;
        let failure = refusal(StatusCode::UNPROCESSABLE_ENTITY, body, None, true);
        assert!(!failure.message.to_string().contains("hunter2"));
        assert_eq!(failure.reason, Reason::Invalid { fields: Vec::new() });
        let body = br#"{"message":"x: ValidatingAdmissionPolicy 'brokkr-fence' with binding 'b' denied request: no"}"#;
        let failure = refusal(StatusCode::UNPROCESSABLE_ENTITY, body, None, true);
        assert_eq!(failure.message.to_string(), "refused by Brokkr's admission policy in the cluster: no");
    }
}

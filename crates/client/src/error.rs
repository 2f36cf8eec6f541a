//! Errors of calls.

use std::time::Duration;

use brokkr_api::{ErrorCode, Problem};
use jiff::Timestamp;
use url::Url;

use crate::response::InvalidResponse;

pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a call failed. An error contains no credentials, and its URL has no query.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker refused the request.
    #[error("{problem}")]
    Problem { problem: Box<Problem>, retry_after: Option<Duration> },
    /// No connection, or it was lost before the response.
    #[error("cannot reach {url}: {source}{}", proxy.as_ref().map(|proxy| format!(" (through the proxy {proxy})")).unwrap_or_default())]
    Unreachable {
        url: Url,
        source: TransportError,
        /// The proxy from the environment, without its credentials.
        proxy: Option<String>,
        /// How long the client tried.
        after: Duration,
    },
    #[error("no response from {url} within {} s", after.as_secs())]
    Timeout { url: Url, after: Duration },
    /// The response is not from a broker, or damaged.
    #[error("invalid response from {url}: {what}")]
    InvalidResponse { url: Url, what: InvalidResponse },
    /// The request cannot be built: a credential or header is not valid in HTTP.
    #[error("cannot build the request: {what}")]
    Unsendable { what: &'static str },
}

/// An error below HTTP, with the text of the innermost cause.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TransportError {
    pub reason: String,
    pub stage: Stage,
    /// The certificate was refused, so a retry does not help.
    pub certificate: bool,
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The name has no address.
    Name,
    /// Nothing listens there, or the network drops packets.
    Connect,
    /// The proxy refused the connection.
    Proxy,
    /// The TLS handshake failed, usually because the certificate is not trusted.
    Tls,
    /// The certificate is not valid at this time: a clock is wrong, or it was not renewed.
    Clock,
    /// The connection was lost before the response.
    Exchange,
}

impl ClientError {
    /// Returns whether the same request may succeed later without changes.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => problem.code.is_transient(),
            Self::Unreachable { source, .. } => !source.certificate,
            Self::Timeout { .. } => true,
            Self::InvalidResponse { what, .. } => what.is_transient(),
            Self::Unsendable { .. } => false,
        }
    }

    /// Returns whether to retry. An internal error of the broker is also transient, but retries would only
    /// hide it.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => {
                matches!(problem.status, 502..=504) && problem.code.is_transient()
            }
            other => other.is_transient(),
        }
    }

    /// Sets how long the call was tried.
    pub(crate) fn after_all(mut self, tried: Duration) -> Self {
        if let Self::Unreachable { after, .. } = &mut self {
            *after = tried;
        }
        self
    }

    /// Returns the code of the problem, if the broker sent one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Problem { problem, .. } => Some(problem.code),
            _ => None,
        }
    }

    /// Returns how long the broker asked the client to wait, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { retry_after, .. } => *retry_after,
            Self::InvalidResponse { what: InvalidResponse::Status { retry_after, .. }, .. } => *retry_after,
            _ => None,
        }
    }
}

impl TransportError {
    /// Takes the innermost cause: the outer ones only repeat that sending failed.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let mut chain = vec![error.to_string()];
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
            chain.push(innermost.to_string());
        }
        let is_outermost = std::ptr::addr_eq(innermost, std::ptr::from_ref(error));
        let reason = if is_outermost { "the connection failed".to_owned() } else { innermost.to_string() };
        let certificate = reason.contains("certificate");
        let stage = stage(&chain, error.is_connect());
        Self { reason: reworded(stage, reason, Timestamp::now()), stage, certificate }
    }
}

/// Derives the stage from the text of the errors, because the libraries below do not report it in another
/// way.
fn stage(chain: &[String], connecting: bool) -> Stage {
    let says = |words: &[&str]| chain.iter().any(|line| words.iter().any(|word| line.contains(word)));
    if says(&["dns error", "failed to lookup address"]) {
        Stage::Name
    } else if says(&["certificate not valid yet", "certificate expired"]) {
        Stage::Clock
    } else if says(&["certificate", "TLS", "tls handshake", "received fatal alert", "corrupt message"]) {
        Stage::Tls
    } else if says(&["tunnel", "proxy authorization"]) {
        Stage::Proxy
    } else if connecting {
        Stage::Connect
    } else {
        Stage::Exchange
    }
}

/// Rewords errors of the libraries for users.
fn reworded(stage: Stage, reason: String, now: Timestamp) -> String {
    match (stage, reason.as_str()) {
        (Stage::Proxy, "tunnel error: proxy authorization required") => {
            "the proxy requires a user name and password".to_owned()
        }
        (Stage::Proxy, "tunnel error: unsuccessful") => "the proxy refused the connection".to_owned(),
        (Stage::Proxy, "tunnel error: unexpected end of file") => {
            "the proxy closed the connection".to_owned()
        }
        (Stage::Clock, _) => {
            let verdict = reason.split(": verification time").next().unwrap_or_default();
            format!("{verdict}; the local clock says {now:.0}")
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_libraries_are_reworded() {
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        let early = "invalid peer certificate: certificate not valid yet: verification time 5 (UNIX), but certificate \
                     is not valid before 9 (4 seconds in future)";
        for (reason, expected_stage, expected) in [
            (
                early,
                Stage::Clock,
                "invalid peer certificate: certificate not valid yet; the local clock says 2026-03-01T12:00:00Z",
            ),
            (
                "invalid peer certificate: certificate expired",
                Stage::Clock,
                "invalid peer certificate: certificate expired; the local clock says 2026-03-01T12:00:00Z",
            ),
            (
                "tunnel error: proxy authorization required",
                Stage::Proxy,
                "the proxy requires a user name and password",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                Stage::Tls,
                "invalid peer certificate: UnknownIssuer",
            ),
        ] {
            let stage = stage(&["error sending request".to_owned(), reason.to_owned()], true);
            assert_eq!(stage, expected_stage, "{reason}");
            assert_eq!(reworded(stage, reason.to_owned(), now), expected);
        }
    }
}

//! Why a call failed, so that the caller can decide: correct it, wait, or give up.

use std::time::Duration;

use brokkr_api::{ErrorCode, Problem};
use jiff::Timestamp;
use url::Url;

use crate::answer::WrongAnswer;

/// No variant ever holds a credential; URLs are stored without query.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker understood and refused.
    #[error("{problem}")]
    Problem { problem: Box<Problem>, retry_after: Option<Duration> },
    /// No connection, or it was lost before an answer came.
    #[error("cannot reach {url}: {source}{}", proxy.as_ref().map(|proxy| format!(" (through the proxy {proxy})")).unwrap_or_default())]
    Unreachable {
        url: Url,
        source: TransportError,
        /// The proxy that the environment names for this URL, without its credentials.
        proxy: Option<String>,
        /// How long was tried.
        after: Duration,
    },
    #[error("no answer from {url} within {} s", after.as_secs())]
    Timeout { url: Url, after: Duration },
    /// Something answered, and it was not what the broker says.
    #[error("{url} gave a wrong answer: {what}")]
    BadAnswer { url: Url, what: WrongAnswer },
    /// The request could not be made: a credential or a header that HTTP cannot carry.
    #[error("cannot make the request: {what}")]
    Unsendable { what: &'static str },
}

/// What went wrong below HTTP, as one line from the innermost cause.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TransportError {
    pub reason: String,
    pub stage: Stage,
    /// The other side's certificate was refused: waiting will not help.
    pub certificate: bool,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The name has no address.
    Name,
    /// Nothing listens there, or nothing comes through.
    Connect,
    /// The proxy does not let it through.
    Proxy,
    /// The certificate is not one to trust.
    Tls,
    /// The certificate is not valid at this time: a clock is wrong, or it was not renewed.
    Clock,
    /// Connected, and lost before an answer came.
    Exchange,
}

impl ClientError {
    /// Whether the same request may succeed later without being changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => problem.code.is_transient(),
            Self::Unreachable { source, .. } => !source.certificate,
            Self::Timeout { .. } => true,
            Self::BadAnswer { what, .. } => what.is_transient(),
            Self::Unsendable { .. } => false,
        }
    }

    /// Whether a call should be sent again at once: an internal error of the broker is transient, too, but
    /// hiding it behind half a minute of retries helps nobody.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        match self {
            Self::Problem { problem, .. } => {
                matches!(problem.status, 502..=504) && problem.code.is_transient()
            }
            other => other.is_transient(),
        }
    }

    /// The last error of a call that was tried for so long.
    pub(crate) fn after_all(mut self, tried: Duration) -> Self {
        if let Self::Unreachable { after, .. } = &mut self {
            *after = tried;
        }
        self
    }

    /// The problem's code, if the broker gave one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Problem { problem, .. } => Some(problem.code),
            _ => None,
        }
    }

    /// How long the broker asked to wait, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { retry_after, .. } => *retry_after,
            Self::BadAnswer { what: WrongAnswer::Status { retry_after, .. }, .. } => *retry_after,
            _ => None,
        }
    }
}

impl TransportError {
    /// Takes the innermost cause: the outer ones only repeat that sending failed.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let mut told = vec![error.to_string()];
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
            told.push(innermost.to_string());
        }
        let is_outermost = std::ptr::addr_eq(innermost, std::ptr::from_ref(error));
        let reason = if is_outermost { "the connection failed".to_owned() } else { innermost.to_string() };
        let certificate = reason.contains("certificate");
        let stage = stage(&told, error.is_connect());
        Self { reason: plainly(stage, reason, Timestamp::now()), stage, certificate }
    }
}

/// The libraries below tell their stages in words only.
fn stage(told: &[String], connecting: bool) -> Stage {
    let says = |words: &[&str]| told.iter().any(|line| words.iter().any(|word| line.contains(word)));
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

/// What the libraries say for programmers, for whoever has to do something about it.
fn plainly(stage: Stage, reason: String, now: Timestamp) -> String {
    match (stage, reason.as_str()) {
        (Stage::Proxy, "tunnel error: proxy authorization required") => {
            "the proxy wants a user and a password".to_owned()
        }
        (Stage::Proxy, "tunnel error: unsuccessful") => {
            "the proxy was asked for a way there, and refused it".to_owned()
        }
        (Stage::Proxy, "tunnel error: unexpected end of file") => "the proxy hung up".to_owned(),
        (Stage::Clock, _) => {
            let verdict = reason.split(": verification time").next().unwrap_or_default();
            format!("{verdict}; the clock here says {now:.0}")
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_about_it_is_said_plainly() {
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        let early = "invalid peer certificate: certificate not valid yet: verification time 5 (UNIX), but certificate \
                     is not valid before 9 (4 seconds in future)";
        for (reason, expected_stage, expected) in [
            (
                early,
                Stage::Clock,
                "invalid peer certificate: certificate not valid yet; the clock here says 2026-03-01T12:00:00Z",
            ),
            (
                "invalid peer certificate: certificate expired",
                Stage::Clock,
                "invalid peer certificate: certificate expired; the clock here says 2026-03-01T12:00:00Z",
            ),
            (
                "tunnel error: proxy authorization required",
                Stage::Proxy,
                "the proxy wants a user and a password",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                Stage::Tls,
                "invalid peer certificate: UnknownIssuer",
            ),
        ] {
            let stage = stage(&["error sending request".to_owned(), reason.to_owned()], true);
            assert_eq!(stage, expected_stage, "{reason}");
            assert_eq!(plainly(stage, reason.to_owned(), now), expected);
        }
    }
}

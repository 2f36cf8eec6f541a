//! Checks that a response is from a broker, and not from a proxy, a captive portal or a load balancer.

use std::time::Duration;

use brokkr_api::{AgentId, InstallationId, Position, PositionToken, Problem, protocol};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use url::Url;

use crate::error::{ClientError, Result};
use crate::plausible::{Implausible, check_position};

/// Why a response is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidResponse {
    #[error("it is truncated")]
    CutOff,
    #[error("it is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("it is a web page, probably of a captive portal or a proxy (HTTP {status})")]
    WebPage { status: u16 },
    #[error("it is a redirect (HTTP {status}), which is not followed")]
    Redirect { status: u16 },
    #[error("HTTP {status}{}", detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default())]
    Status { status: u16, detail: Option<String>, retry_after: Option<Duration> },
    #[error("its media type is {found:?} instead of {wanted}")]
    MediaType { found: String, wanted: &'static str },
    #[error("it cannot be parsed: {reason}")]
    Unreadable { reason: String },
    #[error("its header {name} is missing or malformed")]
    Header { name: &'static str },
    #[error("its content does not match its entity tag")]
    EntityTag,
    #[error("it is for another agent, {found}")]
    OtherAgent { found: AgentId },
    #[error("it is from another installation, {found}")]
    OtherInstallation { found: InstallationId },
    #[error("its position {found} is behind {seen}, the position of an earlier response")]
    Older { found: Position, seen: Position },
    #[error(transparent)]
    Implausible(Implausible),
    #[error("it has too many pages")]
    EndlessPages,
}

impl InvalidResponse {
    /// Returns whether the next response may be valid.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::CutOff | Self::EntityTag | Self::Older { .. } => true,
            Self::Status { status, .. } | Self::WebPage { status } => matches!(status, 408 | 429 | 502..=504),
            _ => false,
        }
    }

    pub(crate) fn at(self, url: &Url) -> ClientError {
        ClientError::InvalidResponse { url: url.clone(), what: self }
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub url: Url,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Response {
    /// Returns success and 304; everything else becomes an error.
    pub(crate) fn accepted(self) -> Result<Self> {
        let status = self.status.as_u16();
        if self.status.is_success() || self.status == StatusCode::NOT_MODIFIED {
            return Ok(self);
        }
        if self.status.is_redirection() {
            return Err(InvalidResponse::Redirect { status }.at(&self.url));
        }
        let retry_after = self.retry_after();
        if media_type(&self.headers).ends_with("json") {
            if let Ok(problem) = serde_json::from_slice::<Problem>(&self.body) {
                return Err(ClientError::Problem { problem: Box::new(problem), retry_after });
            }
            return Err(
                InvalidResponse::Status { status, detail: self.unknown_problem(), retry_after }.at(&self.url)
            );
        }
        if self.is_web_page() {
            return Err(InvalidResponse::WebPage { status }.at(&self.url));
        }
        Err(InvalidResponse::Status { status, detail: None, retry_after }.at(&self.url))
    }

    /// Returns the text of a problem with a code that this version does not know.
    fn unknown_problem(&self) -> Option<String> {
        let document: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        let text = |member: &str| document.get(member).and_then(|value| value.as_str());
        match (text("detail").or_else(|| text("title"))?, text("code")) {
            (sentence, Some(code)) => Some(format!("{sentence} ({code})")),
            (sentence, None) => Some(sentence.to_owned()),
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        // The broker never sends the form with a date, which a wrong clock would misread.
        self.text_of("retry-after")?.parse().ok().map(Duration::from_secs)
    }

    /// Returns the position of the response.
    pub(crate) fn position(&self) -> Option<PositionToken> {
        self.text_of(protocol::header::POSITION)?.parse().ok()
    }

    /// Returns the position of a response to an agent, which has seen this one before.
    pub(crate) fn demand_position(&self, seen: Position) -> Result<PositionToken> {
        let name = protocol::header::POSITION;
        let found = self.position().ok_or_else(|| InvalidResponse::Header { name }.at(&self.url))?;
        check_position(seen, found.position, Timestamp::now().as_second())
            .map_err(|error| InvalidResponse::Implausible(error).at(&self.url))?;
        Ok(found)
    }

    pub(crate) fn text_of(&self, name: &'static str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_web_page(&self) -> bool {
        media_type(&self.headers).contains("html")
    }

    pub(crate) fn demand_media_type(&self, wanted: &'static str) -> Result<()> {
        let found = media_type(&self.headers);
        if found == wanted {
            return Ok(());
        }
        let what = if self.is_web_page() {
            InvalidResponse::WebPage { status: self.status.as_u16() }
        } else {
            InvalidResponse::MediaType { found, wanted }
        };
        Err(what.at(&self.url))
    }

    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        self.demand_media_type("application/json")?;
        self.parsed()
    }

    pub(crate) fn parsed<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // The text of a serde error can quote the body, which may contain a secret.
            let reason =
                format!("{:?} error at line {}, column {}", error.classify(), error.line(), error.column());
            InvalidResponse::Unreadable { reason }.at(&self.url)
        })
    }
}

/// Returns the media type without its parameters, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

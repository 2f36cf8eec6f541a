//! Reads the headers of the protocol.

use std::str::FromStr;
use std::sync::LazyLock;

use brokkr_api::PositionToken;
use brokkr_api::protocol::{Capabilities, header};
use http::{HeaderMap, HeaderValue};

use crate::error::{ApiError, ApiResult};

/// Reads an optional header; fails if it is present and invalid.
pub fn optional<T: FromStr>(headers: &HeaderMap, name: &str) -> ApiResult<Option<T>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().ok();
    let read = text.and_then(|text| text.trim().parse().ok());
    read.map(Some).ok_or_else(|| ApiError::invalid_request(format!("invalid header {name}")))
}

pub fn position(headers: &HeaderMap) -> ApiResult<Option<PositionToken>> {
    optional(headers, header::POSITION)
}

/// Returns the capabilities of this broker. Every response to a poll carries them, so they are encoded once.
pub fn own_capabilities() -> HeaderValue {
    static OWN: LazyLock<HeaderValue> = LazyLock::new(|| text(&Capabilities::own().to_string()));
    OWN.clone()
}

/// Returns the capabilities that the peer announced; none if it announced none.
pub fn capabilities(headers: &HeaderMap) -> Capabilities {
    let text = headers.get(header::CAPABILITIES).and_then(|value| value.to_str().ok());
    text.map(Capabilities::parse).unwrap_or_default()
}

/// Returns whether `If-None-Match` names the tag; `*` names any.
pub fn has_already(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(http::header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|tag| tag.trim() == "*" || brokkr_api::protocol::same_etag(tag, etag))
}

/// Returns the seconds of `Prefer: wait=SECONDS`, if any.
pub fn preferred_wait(headers: &HeaderMap) -> Option<u64> {
    headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split([',', ';']))
        .find_map(|item| item.trim().strip_prefix("wait=")?.trim().parse().ok())
}

pub fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_and_tags_are_lists() {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", HeaderValue::from_static("respond-async, wait=30"));
        headers.insert("if-none-match", HeaderValue::from_static("\"a\", W/\"b\""));
        assert_eq!(preferred_wait(&headers), Some(30));
        assert!(has_already(&headers, "\"b\""));
        assert!(!has_already(&headers, "\"c\""));
    }
}

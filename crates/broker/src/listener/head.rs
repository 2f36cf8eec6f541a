//! The head of a request as the lobby reads it: is it complete, and is it a poll that may have to wait.
//!
//! Only a plain poll is taken apart here: a GET of a target state without a body and with nothing unusual about it.
//! Everything else, what cannot be read included, is left to hyper, which knows the whole of HTTP.

use axum::body::Body;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request};

/// The most that the head of a request may be.
pub const HEAD_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// What has come so far.
#[derive(Debug)]
pub enum Visit {
    /// The head is not complete.
    Incomplete,
    /// A poll, and how many bytes of the input it was.
    Poll(Box<Request<Body>>, usize),
    /// HTTP/2 without TLS having said so.
    Http2,
    /// Something else.
    Other,
}

/// Looks at what has come. `looked` is how much of it was looked at before, so that bytes which come one by
/// one are not read over and over.
pub fn visit(input: &[u8], looked: usize) -> Visit {
    let fresh = &input[looked.saturating_sub(3)..];
    if !fresh.windows(2).any(|two| two == b"\n\n") && !fresh.windows(3).any(|three| three == b"\n\r\n") {
        return if input.len() < HEAD_BYTES { Visit::Incomplete } else { Visit::Other };
    }
    if input.starts_with(PREFACE) {
        return Visit::Http2;
    }
    poll(input).map_or(Visit::Other, |(request, used)| Visit::Poll(Box::new(request), used))
}

fn poll(input: &[u8]) -> Option<(Request<Body>, usize)> {
    if !input.starts_with(b"GET /api/v1/agents/") {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(used) = parsed.parse(input).ok()? else { return None };
    let path = parsed.path?;
    if parsed.method != Some("GET") || parsed.version != Some(1) || !path.ends_with("/target-state") {
        return None;
    }
    let mut map = HeaderMap::with_capacity(parsed.headers.len());
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        map.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    let unusual = [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT, UPGRADE, TE, CONNECTION];
    if unusual.iter().any(|name| map.contains_key(name)) || map.get_all(HOST).iter().count() != 1 {
        return None;
    }
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = path.parse().ok()?;
    *request.headers_mut() = map;
    Some((request, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: &str = "GET /api/v1/agents/a/target-state HTTP/1.1\r\nhost: b\r\nprefer: wait=30\r\n";

    fn kind(text: &str) -> &'static str {
        match visit(text.as_bytes(), 0) {
            Visit::Incomplete => "incomplete",
            Visit::Poll(..) => "poll",
            Visit::Http2 => "http2",
            Visit::Other => "other",
        }
    }

    #[test]
    fn a_poll_is_known_when_its_head_is_complete() {
        let whole = format!("{POLL}\r\n");
        for length in 0..whole.len() {
            assert_eq!(kind(&whole[..length]), "incomplete", "{length}");
        }
        let Visit::Poll(request, used) = visit(format!("{whole}GET").as_bytes(), whole.len() - 1) else {
            panic!("a poll")
        };
        assert_eq!((used, request.uri().path()), (whole.len(), "/api/v1/agents/a/target-state"));
        assert_eq!(request.headers()["prefer"], "wait=30");
    }

    #[test]
    fn what_is_unusual_is_left_to_hyper() {
        for line in [
            "content-length: 0",
            "transfer-encoding: chunked",
            "connection: close",
            "expect: 100-continue",
            "host: again",
            "te: trailers",
            "sp ace: a",
            " folded",
        ] {
            assert_eq!(kind(&format!("{POLL}{line}\r\n\r\n")), "other", "{line}");
        }
        assert_eq!(kind("GET /livez HTTP/1.1\r\nhost: b\r\n\r\n"), "other");
        assert_eq!(kind("POST /api/v1/agents/a/target-state HTTP/1.1\r\nhost: b\r\n\r\n"), "other");
        assert_eq!(kind("GET /api/v1/agents/a/target-state HTTP/1.0\r\nhost: b\r\n\r\n"), "other");
        assert_eq!(kind("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "http2");
        assert_eq!(kind("\r\n\r\n"), "other");
        assert_eq!(kind(&"x".repeat(HEAD_BYTES)), "other");
        assert_eq!(kind("P"), "incomplete");
    }
}

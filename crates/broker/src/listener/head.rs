//! Parses the head of a request on HTTP/1: whether it is complete, and whether it is a poll that may have to wait.
//!
//! Only a plain poll is parsed here: a GET of a target state without a body or unusual headers. Everything else,
//! malformed heads included, is left to hyper, which implements all of HTTP.

use axum::body::Body;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request};

/// The largest head of a request.
pub const HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// The head that was received so far.
#[derive(Debug)]
pub enum Head {
    /// Not complete yet.
    Incomplete,
    /// A poll, and the number of bytes it used.
    Poll(Box<Request<Body>>, usize),
    /// The preface of HTTP/2, on a connection without ALPN.
    Http2,
    /// Any other request.
    Other,
}

/// Parses the received bytes. `seen` is how many were already examined, so that bytes that arrive one by one are not
/// scanned again and again.
pub fn parse_head(input: &[u8], seen: usize) -> Head {
    let fresh = &input[seen.saturating_sub(3)..];
    if !fresh.windows(2).any(|two| two == b"\n\n") && !fresh.windows(3).any(|three| three == b"\n\r\n") {
        return if input.len() < HEAD_BYTES { Head::Incomplete } else { Head::Other };
    }
    if input.starts_with(PREFACE) {
        return Head::Http2;
    }
    poll(input).map_or(Head::Other, |(request, used)| Head::Poll(Box::new(request), used))
}

fn poll(input: &[u8]) -> Option<(Request<Body>, usize)> {
    if !input.starts_with(b"GET /api/v1/agents/") {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(used) = parsed.parse(input).ok()? else { return None };
    // Others may read a line feed without a carriage return differently; a larger head is for hyper to refuse.
    if used > HEAD_BYTES || !has_only_crlf(&input[..used]) {
        return None;
    }
    let path = parsed.path?;
    if parsed.method != Some("GET") || parsed.version != Some(1) || !is_target_state(path) {
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

/// Returns whether this is exactly the path of a target state: a query, a further segment or an escaped character could
/// mean something else to the router.
fn is_target_state(path: &str) -> bool {
    let agent = path.strip_prefix("/api/v1/agents/").and_then(|rest| rest.strip_suffix("/target-state"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    agent.is_some_and(|agent| !agent.is_empty() && agent.bytes().all(is_plain))
}

fn has_only_crlf(head: &[u8]) -> bool {
    head.split_inclusive(|&byte| byte == b'\n').all(|line| line.ends_with(b"\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: &str = "GET /api/v1/agents/a/target-state HTTP/1.1\r\nhost: b\r\nprefer: wait=30\r\n";

    fn kind(text: &str) -> &'static str {
        match parse_head(text.as_bytes(), 0) {
            Head::Incomplete => "incomplete",
            Head::Poll(..) => "poll",
            Head::Http2 => "http2",
            Head::Other => "other",
        }
    }

    #[test]
    fn a_poll_is_recognised_when_its_head_is_complete() {
        let whole = format!("{POLL}\r\n");
        for length in 0..whole.len() {
            assert_eq!(kind(&whole[..length]), "incomplete", "{length}");
        }
        let Head::Poll(request, used) = parse_head(format!("{whole}GET").as_bytes(), whole.len() - 1) else {
            panic!("a poll")
        };
        assert_eq!((used, request.uri().path()), (whole.len(), "/api/v1/agents/a/target-state"));
        assert_eq!(request.headers()["prefer"], "wait=30");
    }

    #[test]
    fn unusual_requests_are_left_to_hyper() {
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
        for path in ["a/b", "", "a?b=", "a%2f", "..", "a/target-state?b=", "a/target-state#"] {
            let request = format!("GET /api/v1/agents/{path}/target-state HTTP/1.1\r\nhost: b\r\n\r\n");
            assert_eq!(kind(&request), "other", "{path}");
        }
        assert_eq!(kind("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "http2");
        assert_eq!(kind("\r\n\r\n"), "other");
        assert_eq!(kind(&format!("{POLL}\n")), "other");
        assert_eq!(kind(&format!("{POLL}a: b\n\r\n")), "other");
        assert_eq!(kind(&format!("{POLL}a: {}\r\n\r\n", "x".repeat(HEAD_BYTES))), "other");
        assert_eq!(kind(&"x".repeat(HEAD_BYTES)), "other");
        assert_eq!(kind("P"), "incomplete");
    }
}

//! hyper as the reference for the broker's own parser of heads. The fuzz target `http_heads` uses it too.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::ready;

use brokkr_broker::listener::head::{HEAD_BYTES, Head, parse_head};
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::Empty;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Follows the examined request on its connection.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nhost: next\r\n\r\n";

/// A request as a parser sees it.
#[derive(Clone, Debug, PartialEq)]
struct SeenRequest {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    has_body: bool,
}

impl SeenRequest {
    fn new<B>(request: &Request<B>, has_body: bool) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            has_body,
        }
    }
}

/// Returns the requests that hyper accepts on a connection on which exactly these bytes arrive.
fn seen_by_hyper(bytes: &[u8]) -> Vec<SeenRequest> {
    let seen = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        seen.borrow_mut().push(SeenRequest::new(&request, !request.body().is_end_stream()));
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    let io = TokioIo::new(tokio::io::join(bytes, tokio::io::sink()));
    // An error ends the connection as its last byte does.
    let ended = http1::Builder::new().max_buf_size(HEAD_BYTES).serve_connection(io, service).now_or_never();
    assert!(ended.is_some(), "hyper waits although all bytes have arrived");
    seen.into_inner()
}

/// Panics if the broker takes a request that hyper sees differently, refuses, or closes the connection after. Returns
/// whether the broker takes the request.
pub fn agrees_with_hyper(bytes: &[u8]) -> bool {
    let Head::Poll(request, used) = parse_head(bytes, 0) else { return false };
    let own = SeenRequest::new(&request, false);
    let (head, text) = (&bytes[..used], String::from_utf8_lossy(&bytes[..used]));
    assert_eq!(seen_by_hyper(bytes).first(), Some(&own), "{text:?}");
    // The request ends at the same byte, has no body, and leaves the connection open.
    let next = Request::get("/next").header("host", "next").body(()).expect("a request");
    let both = [own, SeenRequest::new(&next, false)];
    assert_eq!(seen_by_hyper(&[head, NEXT].concat()), both, "{text:?}");
    // hyper accepts lines that end without a carriage return; a proxy in front of the broker may not.
    let feeds = head.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(feeds, head.windows(2).filter(|two| two == b"\r\n").count(), "{text:?}");
    true
}

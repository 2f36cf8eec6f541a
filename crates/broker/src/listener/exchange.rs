//! Serves one request through hyper, then returns the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::access::origin::Peer;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use super::guarded_body::GuardedBody;
use super::head::HEAD_BYTES;
use super::rewind::Rewind;
use super::{ConnectionContext, HEAD};

/// How much of an unread body is discarded before the connection closes, and for how long: a submission that is too
/// large is refused before it is read, and its sender has to see why.
const MAX_DISCARDED: u64 = 16 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the exchange while hyper owns the connection.
#[derive(Debug, Default)]
struct Exchange {
    answered: Notify,
    /// Once set, hyper reads nothing more: a fast peer may send its next request before hyper shuts down.
    over: Arc<AtomicBool>,
    /// The body was not read to its end: the next bytes on the connection would not be a request.
    unread: AtomicBool,
    /// The peer or the broker announced the end of the connection.
    last: AtomicBool,
}

/// Serves one request of which the first bytes were already read. Returns none if the connection has ended.
pub async fn serve<S>(stream: S, first: Bytes, context: &ConnectionContext) -> Option<(Bytes, S)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = Arc::new(Exchange::default());
    let service = hyper::service::service_fn({
        let (exchange, context) = (Arc::clone(&exchange), context.clone());
        move |request| Box::pin(respond(Arc::clone(&exchange), context.clone(), request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(
            TokioIo::new(Rewind::new(first, stream).until(Arc::clone(&exchange.over))),
            service,
        );
    let mut answered = false;
    let failed = loop {
        let ended = std::future::poll_fn(|task| connection.poll_without_shutdown(task));
        tokio::select! {
            ended = ended => {
                if let Err(error) = &ended {
                    tracing::debug!(%error, "connection failed");
                }
                break ended.is_err();
            }
            () = exchange.answered.notified(), if !answered => {
                answered = true;
                // hyper has taken the whole response: now it stops as soon as the response is written.
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let (rest, stream) = parts.io.into_inner().into_parts();
    if failed || exchange.unread.load(Ordering::Relaxed) || exchange.last.load(Ordering::Relaxed) {
        close(stream).await;
        return None;
    }
    // Both have bytes only if hyper stopped reading early: the unread bytes follow the buffered ones.
    let rest =
        if rest.is_empty() { parts.read_buf } else { [&parts.read_buf[..], &rest[..]].concat().into() };
    Some((rest, stream))
}

/// Shuts the connection down and discards for a while what the peer still sends. Closing a socket with unread bytes
/// would reset the connection before the peer has read the response.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let closing = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(MAX_DISCARDED), &mut tokio::io::sink()).await
    };
    // The connection ends either way.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, closing).await;
}

async fn respond(
    exchange: Arc<Exchange>,
    context: ConnectionContext,
    request: Request<Incoming>,
) -> Result<Response<GuardedBody<Answered>>, Infallible> {
    let wants_close = request.version() != Version::HTTP_11
        || request.headers().get_all(CONNECTION).iter().any(|value| {
            value.to_str().is_ok_and(|text| {
                text.to_ascii_lowercase().split(',').any(|word| word.trim() != "keep-alive")
            })
        });
    // A second request arrives here only if it was sent together with the first; hyper ends after it.
    let second = exchange.over.load(Ordering::Acquire);
    let last = wants_close || second || context.leaving.is_cancelled();
    let (mut parts, body) = request.into_parts();
    exchange.unread.store(!http_body::Body::is_end_stream(&body), Ordering::Relaxed);
    parts.extensions.insert(Peer(context.peer.ip()));
    let body = Body::new(RequestBody { body, exchange: Arc::clone(&exchange) });
    let Ok(mut response) = context.router.oneshot(Request::from_parts(parts, body)).await;
    let last = last || !context.keep_alive.after(&response);
    exchange.last.fetch_or(last, Ordering::Relaxed);
    // Without this header the peer would send its next request into a closing connection.
    if last || exchange.unread.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| GuardedBody { body, _guard: Answered(exchange) }))
}

/// The body of the request; records that it was read to its end.
struct RequestBody {
    body: Incoming,
    exchange: Arc<Exchange>,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(task);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.exchange.unread.store(false, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Dropped with the body of the response: records that hyper has taken all of it.
struct Answered(Arc<Exchange>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.answered.notify_one();
    }
}

//! One request and its answer through hyper. Then the connection comes back.

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

use super::HEAD;
use super::head::HEAD_BYTES;
use super::lobby::Desk;
use super::rewind::Rewind;

/// How much of what nobody wanted to read is taken in, and for how long.
const MOST_UNREAD: u64 = 1024 * 1024;
const PARTING: Duration = Duration::from_secs(2);

/// What is known about the exchange while hyper has the connection.
#[derive(Debug, Default)]
struct Exchange {
    answered: Notify,
    /// From then on hyper reads nothing: a quick peer has its next request here before hyper is told to end.
    over: Arc<AtomicBool>,
    /// A body of which something was not read: what comes next on the connection would not be a request.
    unread: AtomicBool,
    /// Peer or broker said that the connection ends.
    last: AtomicBool,
}

/// Serves one request, whose first bytes were read already. None: the connection has ended.
pub async fn serve<S>(stream: S, first: Bytes, desk: &Desk) -> Option<(Bytes, S)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = Arc::new(Exchange::default());
    let service = hyper::service::service_fn({
        let (exchange, desk) = (Arc::clone(&exchange), desk.clone());
        move |request| Box::pin(respond(Arc::clone(&exchange), desk.clone(), request))
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
    loop {
        let ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context));
        tokio::select! {
            ended = ended => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended badly");
                    return None;
                }
                break;
            }
            () = exchange.answered.notified(), if !answered => {
                answered = true;
                // The head of the answer is written: hyper ends when its body is, and tells nobody.
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    let parts = connection.into_parts();
    let (rest, stream) = parts.io.into_inner().into_parts();
    if exchange.unread.load(Ordering::Relaxed) || exchange.last.load(Ordering::Relaxed) {
        part(stream).await;
        return None;
    }
    // Both may be there only if hyper did not read on: then what it has not read comes after what it has.
    let rest =
        if rest.is_empty() { parts.read_buf } else { [&parts.read_buf[..], &rest[..]].concat().into() };
    Some((rest, stream))
}

/// Says that nothing more comes, and takes in for a while what the peer still sends. Whoever just closes makes the
/// system tear the connection down under the answer, if there is anything that was not read.
async fn part<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let parting = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(MOST_UNREAD), &mut tokio::io::sink()).await
    };
    // However it ends, it ends.
    let _ = tokio::time::timeout(PARTING, parting).await;
}

async fn respond(
    exchange: Arc<Exchange>,
    desk: Desk,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let asks_to_end = request.version() != Version::HTTP_11
        || request.headers().get_all(CONNECTION).iter().any(|value| {
            value.to_str().is_ok_and(|text| {
                text.to_ascii_lowercase().split(',').any(|word| word.trim() != "keep-alive")
            })
        });
    // A second request can be here only if it came in one piece with the first; hyper ends after it.
    let second = exchange.over.load(Ordering::Acquire);
    let last = asks_to_end || second || desk.leaving.is_cancelled();
    let (mut parts, body) = request.into_parts();
    exchange.unread.store(!http_body::Body::is_end_stream(&body), Ordering::Relaxed);
    exchange.last.fetch_or(last, Ordering::Relaxed);
    parts.extensions.insert(Peer(desk.peer.ip()));
    let body = Body::new(Question { body, exchange: Arc::clone(&exchange) });
    let Ok(mut response) = desk.router.oneshot(Request::from_parts(parts, body)).await;
    // A peer that is not told would send its next request into a connection that ends.
    if last || exchange.unread.load(Ordering::Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| Answer { body, exchange }))
}

/// The body of the request, which notes that it was read to its end.
struct Question {
    body: Incoming,
    exchange: Arc<Exchange>,
}

impl http_body::Body for Question {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
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

/// The body of the answer, which tells when hyper has taken all of it.
struct Answer {
    body: Body,
    exchange: Arc<Exchange>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.exchange.over.store(true, Ordering::Release);
        self.exchange.answered.notify_one();
    }
}

//! HTTP/1. A waiting poll stays here, where it costs little.
//!
//! hyper keeps 24 KB of buffers per connection, active or not, and fifty thousand waiting agents are fifty thousand
//! connections. So hyper owns a connection only while it serves a request that is not a poll. Between requests, and
//! during a poll, the connection is here:
//!
//! ```text
//!            ┌────────── read a head ◄───────────┐
//!            │ poll           │ anything else    │
//!            ▼                ▼                  │
//!      wait for the      one request             │
//!      response, write   through hyper ──────────┤
//!      it ───────────────────────────────────────┘
//! ```
//!
//! A poll does not wait inside the router either, because its layers would keep eight kilobytes for it: the handler only
//! returns that the poll has to wait (`state/long_poll.rs`). A poll that repeats the previous one byte for byte is not parsed.
//!
//! With `--long-polls-in-hyper`, hyper also serves polls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::head::{HEAD_BYTES, Head, parse_head};
use super::{ConnectionContext, HEAD, IDLE, exchange, http2, response};
use crate::access::origin::Peer;
use crate::state::long_poll::{PollResult, RepeatPoll, WaitInListener};

/// Bytes read at once: the head of a poll fits.
const CHUNK: usize = 2048;

/// The last poll on a connection, if its result was "nothing new".
struct LastPoll {
    head: Bytes,
    poll: Arc<dyn RepeatPoll>,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// The first bytes may still choose HTTP/2.
    Undecided,
}

/// Serves one connection to its end.
pub async fn serve<S>(mut stream: S, protocol: Protocol, context: ConnectionContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut input = BytesMut::new();
    let mut last_poll: Option<LastPoll> = None;
    // The first request has to arrive soon; afterwards a connection may stay idle.
    let mut timeout = HEAD;
    // The last poll was read and has to wait.
    let mut parked = false;
    loop {
        let next = if std::mem::take(&mut parked) {
            NextRequest::SamePoll
        } else {
            let known = last_poll.as_ref().map(|poll| &poll.head[..]);
            let next = next_request(&mut stream, &mut input, known, timeout, &context.draining).await;
            let Some(next) = next else { break };
            if let (NextRequest::SamePoll, Some(poll)) = (&next, &last_poll) {
                // Keeps the bytes of the next request and frees the rest of the buffer.
                input = BytesMut::from(&input[poll.head.len()..]);
            }
            next
        };
        timeout = IDLE;
        match next {
            NextRequest::SamePoll => {
                let Some(LastPoll { head, poll }) = last_poll.take() else { break };
                let answered = tokio::select! {
                    answered = poll.answer() => answered,
                    () = disconnected(&mut stream, &mut input) => break,
                };
                match answered {
                    Some(response) => {
                        if !written(&mut stream, response, &context).await {
                            break;
                        }
                        last_poll = Some(LastPoll { head, poll });
                    }
                    // Something changed: parse the request and send it through the router.
                    None => input = BytesMut::from(&[&head[..], &input[..]].concat()[..]),
                }
            }
            NextRequest::Head(Head::Poll(request, used)) if !context.long_polls_in_hyper => {
                let head = Bytes::copy_from_slice(&input[..used]);
                input = BytesMut::from(&input[used..]);
                let answered = tokio::select! {
                    answered = route(*request, &context) => answered,
                    () = disconnected(&mut stream, &mut input) => break,
                };
                let mut response = answered;
                let result = response.extensions_mut().remove::<PollResult>();
                parked = matches!(result, Some(PollResult::Parked(_)));
                last_poll = result.map(|result| {
                    let (PollResult::Answered(poll) | PollResult::Parked(poll)) = result;
                    LastPoll { head, poll }
                });
                if !parked && !written(&mut stream, response, &context).await {
                    break;
                }
            }
            NextRequest::Head(Head::Http2) if protocol == Protocol::Undecided => {
                return Box::pin(http2::serve(stream, input.freeze(), context)).await;
            }
            NextRequest::Head(Head::Poll(..) | Head::Http2 | Head::Other | Head::Incomplete) => {
                let first = std::mem::take(&mut input).freeze();
                let Some((rest, back)) = Box::pin(exchange::serve(stream, first, &context)).await else {
                    return;
                };
                (input, stream) = (BytesMut::from(&rest[..]), back);
                if context.leaving.is_cancelled() {
                    break;
                }
            }
        }
    }
    let _ = tokio::time::timeout(HEAD, stream.shutdown()).await;
}

/// The next request on a connection.
enum NextRequest {
    /// The last poll, byte for byte.
    SamePoll,
    Head(Head),
}

async fn route(mut request: Request<axum::body::Body>, context: &ConnectionContext) -> Response {
    request.extensions_mut().insert(Peer(context.peer.ip()));
    request.extensions_mut().insert(WaitInListener);
    let Ok(response) = context.router.clone().oneshot(request).await;
    // A poll that waits is answered later, without the router.
    context.keep_alive.after(&response);
    response
}

/// Writes the response; returns whether the connection continues.
async fn written<S: AsyncWrite + Unpin>(
    stream: &mut S,
    response: Response,
    context: &ConnectionContext,
) -> bool {
    let last = context.leaving.is_cancelled() || !context.keep_alive.after(&response);
    response::write(stream, response, last).await.is_ok() && !last
}

/// Reads until a head is complete. Returns none if the connection ends.
async fn next_request<S>(
    stream: &mut S,
    input: &mut BytesMut,
    known: Option<&[u8]>,
    timeout: Duration,
    draining: &CancellationToken,
) -> Option<NextRequest>
where
    S: AsyncRead + Unpin,
{
    let mut seen = 0;
    let first_byte = async { if input.is_empty() { read(stream, input).await } else { true } };
    tokio::select! {
        arrived = tokio::time::timeout(timeout, first_byte) => arrived.ok().filter(|arrived| *arrived)?,
        () = draining.cancelled() => return None,
    };
    let complete = async {
        loop {
            if known.is_some_and(|known| input.starts_with(known)) {
                return Some(NextRequest::SamePoll);
            }
            match parse_head(input, seen) {
                Head::Incomplete => seen = input.len(),
                complete => return Some(NextRequest::Head(complete)),
            }
            if !read(stream, input).await {
                return None;
            }
        }
    };
    // However slowly the bytes arrive, the head has to be complete by then.
    tokio::time::timeout(HEAD, complete).await.ok().flatten()
}

/// Reads available bytes; returns false at the end. Allocates only when bytes arrive.
async fn read<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut) -> bool {
    let read = std::future::poll_fn(|task| {
        // On the stack: as part of the `Future`, it would take memory for each connection.
        let mut chunk = [0; CHUNK];
        let mut chunk = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut *stream).poll_read(task, &mut chunk))?;
        input.extend_from_slice(chunk.filled());
        Poll::Ready(std::io::Result::Ok(!chunk.filled().is_empty()))
    });
    read.await.unwrap_or(false)
}

/// Resolves when the peer disconnects. Bytes that it sends meanwhile are kept; beyond a limit, nothing is read until the
/// poll is answered.
async fn disconnected<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut) {
    while input.len() < HEAD_BYTES {
        if !read(stream, input).await {
            return;
        }
    }
    std::future::pending::<()>().await;
}

//! HTTP/1: who waits, waits here, and costs little.
//!
//! hyper keeps 24 KB of buffers for each connection, whether something happens on it or not, and fifty thousand
//! agents that wait are fifty thousand connections. So a connection is with hyper only while a request is
//! answered that is not a poll. Between requests, and during a poll, it is here:
//!
//! ```text
//!            ┌────────── read a head ◄───────────┐
//!            │ poll           │ anything else    │
//!            ▼                ▼                  │
//!      wait for the      one request             │
//!      answer, write     through hyper ──────────┤
//!      it ───────────────────────────────────────┘
//! ```
//!
//! A poll that is, word for word, the one before it is answered without being read: see `target_state::again`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::head::{HEAD_BYTES, Visit, visit};
use super::{HEAD, IDLE, answer, exchange, http2};
use crate::access::origin::Peer;
use crate::http::agents::target_state::again::Again;

/// What is read at once: the head of a poll fits in.
const PIECE: usize = 2048;

/// What a connection needs to be served.
#[derive(Clone, Debug)]
pub struct Desk {
    pub router: Router,
    pub peer: SocketAddr,
    /// Answers say that the connection ends: others serve now.
    pub leaving: CancellationToken,
    /// Connections on which nothing happens end.
    pub stop: CancellationToken,
}

/// The last poll on a connection, if there was nothing new.
struct Before {
    head: Bytes,
    again: Arc<Again>,
}

/// Whether the first bytes may still choose HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Http1,
    Open,
}

/// Serves one connection to its end.
pub async fn serve<S>(mut stream: S, settled: Settled, desk: Desk)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut input = BytesMut::new();
    let mut before: Option<Before> = None;
    // The first request has to come soon; for the next ones a connection may be kept.
    let mut patience = HEAD;
    loop {
        let known = before.as_ref().map(|before| &before.head[..]);
        let Some(next) = head(&mut stream, &mut input, known, patience, &desk.stop).await else { break };
        patience = IDLE;
        match next {
            Next::Same => {
                let Some(Before { head, again }) = before.take() else { break };
                // What was read of the next request is kept, the rest of the room is not.
                input = BytesMut::from(&input[head.len()..]);
                let answered = tokio::select! {
                    answered = Box::pin(again.answer()) => answered,
                    () = gone(&mut stream, &mut input) => break,
                };
                match answered {
                    Some(response) => {
                        if !written(&mut stream, response, &desk).await {
                            break;
                        }
                        before = Some(Before { head, again });
                    }
                    // From the beginning, and this time it is read.
                    None => input = BytesMut::from(&[&head[..], &input[..]].concat()[..]),
                }
            }
            Next::Visit(Visit::Poll(request, used)) => {
                let head = input.split_to(used).freeze();
                input = BytesMut::from(&input[..]);
                let answered = tokio::select! {
                    answered = ask(*request, &desk) => answered,
                    () = gone(&mut stream, &mut input) => break,
                };
                let mut response = answered;
                let again = response.extensions_mut().remove::<Arc<Again>>();
                before = again.map(|again| Before { head, again });
                if !written(&mut stream, response, &desk).await {
                    break;
                }
            }
            Next::Visit(Visit::Http2) if settled == Settled::Open => {
                return Box::pin(http2::serve(stream, input.freeze(), desk)).await;
            }
            Next::Visit(Visit::Http2 | Visit::Other | Visit::Incomplete) => {
                let first = std::mem::take(&mut input).freeze();
                let Some((rest, back)) = Box::pin(exchange::serve(stream, first, &desk)).await else {
                    return;
                };
                (input, stream) = (BytesMut::from(&rest[..]), back);
                if desk.leaving.is_cancelled() {
                    break;
                }
            }
        }
    }
    let _ = tokio::time::timeout(HEAD, stream.shutdown()).await;
}

/// What came on a connection.
enum Next {
    /// The poll before, again.
    Same,
    Visit(Visit),
}

async fn ask(mut request: Request<axum::body::Body>, desk: &Desk) -> Response {
    request.extensions_mut().insert(Peer(desk.peer.ip()));
    let Ok(response) = desk.router.clone().oneshot(request).await;
    response
}

/// Whether the answer went out and the connection goes on.
async fn written<S: AsyncWrite + Unpin>(stream: &mut S, response: Response, desk: &Desk) -> bool {
    let last = desk.leaving.is_cancelled();
    answer::write(stream, response, last).await.is_ok() && !last
}

/// Reads until a head is complete. None: the connection ends, there is nothing to answer.
async fn head<S>(
    stream: &mut S,
    input: &mut BytesMut,
    known: Option<&[u8]>,
    patience: Duration,
    stop: &CancellationToken,
) -> Option<Next>
where
    S: AsyncRead + Unpin,
{
    let mut looked = 0;
    let first_byte = async { if input.is_empty() { read(stream, input).await } else { true } };
    tokio::select! {
        came = tokio::time::timeout(patience, first_byte) => came.ok().filter(|came| *came)?,
        () = stop.cancelled() => return None,
    };
    let complete = async {
        loop {
            if known.is_some_and(|known| input.starts_with(known)) {
                return Some(Next::Same);
            }
            match visit(input, looked) {
                Visit::Incomplete => looked = input.len(),
                complete => return Some(Next::Visit(complete)),
            }
            if !read(stream, input).await {
                return None;
            }
        }
    };
    // However slowly it drips, it has to be complete by then.
    tokio::time::timeout(HEAD, complete).await.ok().flatten()
}

/// Reads what there is; false at the end. Takes room only when something comes.
async fn read<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut) -> bool {
    let came = std::future::poll_fn(|context| {
        // On the stack, not in the future: that is kept for each connection.
        let mut piece = [0; PIECE];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut piece))?;
        input.extend_from_slice(piece.filled());
        Poll::Ready(std::io::Result::Ok(!piece.filled().is_empty()))
    });
    came.await.unwrap_or(false)
}

/// Returns when the peer has gone. What it sends meanwhile is kept for later, within limits.
async fn gone<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut) {
    while read(stream, input).await {
        if input.len() > HEAD_BYTES {
            return;
        }
    }
}

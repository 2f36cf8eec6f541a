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

use std::net::SocketAddr;
use std::time::Duration;

use crate::access::origin::Peer;
use axum::Router;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::head::{HEAD_BYTES, Visit, visit};
use super::{HEAD, IDLE, answer, exchange, http2};

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
    // The first request has to come soon; for the next ones a connection may be kept.
    let mut patience = HEAD;
    loop {
        let Some(next) = head(&mut stream, &mut input, patience, &desk.stop).await else { break };
        patience = IDLE;
        match next {
            Visit::Poll(request, used) => {
                // What was read of the next request is kept, the rest of the room is not.
                input = BytesMut::from(&input[used..]);
                let mut request = *request;
                request.extensions_mut().insert(Peer(desk.peer.ip()));
                let answered = tokio::select! {
                    answered = desk.router.clone().oneshot(request) => answered,
                    () = gone(&mut stream, &mut input) => break,
                };
                let Ok(response) = answered;
                let last = desk.leaving.is_cancelled();
                if answer::write(&mut stream, response, last).await.is_err() || last {
                    break;
                }
            }
            Visit::Http2 if settled == Settled::Open => {
                return Box::pin(http2::serve(stream, input.freeze(), desk)).await;
            }
            Visit::Http2 | Visit::Other | Visit::Incomplete => {
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

/// Reads until a head is complete. None: the connection ends, there is nothing to answer.
async fn head<S>(
    stream: &mut S,
    input: &mut BytesMut,
    patience: Duration,
    stop: &CancellationToken,
) -> Option<Visit>
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
            match visit(input, looked) {
                Visit::Incomplete => looked = input.len(),
                complete => return Some(complete),
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
    let mut part = [0; 512];
    match stream.read(&mut part).await {
        Ok(0) | Err(_) => false,
        Ok(length) => {
            input.extend_from_slice(&part[..length]);
            true
        }
    }
}

/// Returns when the peer has gone. What it sends meanwhile is kept for later, within limits.
async fn gone<S: AsyncRead + Unpin>(stream: &mut S, input: &mut BytesMut) {
    while read(stream, input).await {
        if input.len() > HEAD_BYTES {
            return;
        }
    }
}

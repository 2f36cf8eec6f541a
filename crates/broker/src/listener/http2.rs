//! HTTP/2: concurrent requests on one connection, which is closed when it is idle.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::access::origin::Peer;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use super::guarded_body::GuardedBody;
use super::rewind::Rewind;
use super::{ConnectionContext, HEAD, IDLE, PING};

const STREAMS: u32 = 64;
const HEADER_LIST_BYTES: u32 = 16 * 1024;
/// Buffered bytes of responses that the peer does not read.
const SEND_BYTES: usize = 64 * 1024;
/// Bytes that a peer may send on a stream, and on the connection, before a handler reads them. They are not part of the
/// budget for request bodies, and a peer may send them before it is authenticated.
const STREAM_BYTES: u32 = 128 * 1024;
const CONNECTION_BYTES: u32 = 256 * 1024;

/// Requests of one connection.
#[derive(Debug, Default)]
struct Requests {
    open: AtomicUsize,
    total: AtomicUsize,
}

/// Counts an open request until dropped with the body of its response.
struct Open(Arc<Requests>);

impl Open {
    fn new(requests: &Arc<Requests>) -> Self {
        requests.open.fetch_add(1, Ordering::Relaxed);
        requests.total.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(requests))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection to its end. `first`: bytes that were already read.
pub async fn serve<S>(stream: S, first: Bytes, context: ConnectionContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requests = Arc::new(Requests::default());
    // Notified when the connection may not stay open after its responses.
    let last = Arc::new(Notify::new());
    let service = hyper::service::service_fn({
        let (requests, context, last) = (Arc::clone(&requests), context.clone(), Arc::clone(&last));
        move |mut request: hyper::Request<Incoming>| {
            let open = Open::new(&requests);
            request.extensions_mut().insert(Peer(context.peer.ip()));
            let response = context.router.clone().oneshot(request.map(Body::new));
            let (keep_alive, last) = (Arc::clone(&context.keep_alive), Arc::clone(&last));
            async move {
                let response = response.await;
                if response.as_ref().is_ok_and(|response| !keep_alive.after(response)) {
                    last.notify_one();
                }
                response.map(|response| response.map(|body| GuardedBody { body, _guard: open }))
            }
        }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADER_LIST_BYTES)
            .max_send_buf_size(SEND_BYTES)
            .initial_stream_window_size(STREAM_BYTES)
            .initial_connection_window_size(CONNECTION_BYTES)
            .serve_connection(TokioIo::new(Rewind::new(first, stream)), service)
    );
    let (mut ending, mut seen, mut pause) = (false, 0, HEAD);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            () = tokio::time::sleep(pause) => {
                let idle = requests.open.load(Ordering::Relaxed) == 0
                    && requests.total.load(Ordering::Relaxed) == seen;
                // The peer ignored the shutdown, or never sent a request: close the connection.
                if idle && (ending || seen == 0) {
                    return;
                }
                if idle {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                (seen, pause) = (requests.total.load(Ordering::Relaxed), if ending { HEAD } else { IDLE });
            }
            () = context.leaving.cancelled(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = last.notified(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

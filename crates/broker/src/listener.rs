//! The accept loop. Every wait of a connection has a deadline, so that silent sockets do not live forever.
//!
//! | wait                                                | at most                              |
//! |-----------------------------------------------------|--------------------------------------|
//! | TLS handshake                                       | [`HANDSHAKE`]                        |
//! | first byte of the first request                     | [`HEAD`]                             |
//! | head of a request, from its first byte to its last  | [`HEAD`]                             |
//! | first byte of the next request                      | [`IDLE`]                             |
//! | next request on HTTP/2 while none is open           | [`IDLE`] to twice that               |
//! | a peer on HTTP/2 that no longer answers pings       | [`PING`] twice                       |
//! | a peer that does not read the response              | [`STALLED`]                          |
//! | a request body                                      | 30 s, see `http/body.rs`             |
//! | the end of open requests after a stop               | `drain` of the configuration         |
//!
//! | module              | contents                                                               |
//! |---------------------|------------------------------------------------------------------------|
//! | `http1`             | HTTP/1: reads heads, holds waiting polls without hyper's buffers       |
//! | `head`              | parses the head of a poll                                              |
//! | `response`          | writes the response to a poll                                          |
//! | `exchange`          | any other request on HTTP/1: one request through hyper                 |
//! | `http2`             | HTTP/2                                                                 |
//! | `guarded_body`      | the body of a response with a guard that is dropped with it            |
//! | `write_timeout`     | a socket that fails if the peer does not read                          |
//! | `rewind`            | a stream that first returns bytes that were already read               |
//! | `per_address_limit` | the number of connections per address                                  |
//! | `keep_alive`        | which connections may stay open after a response                       |
//! | `tls`               | the certificate, which is read again when its files change             |

mod exchange;
mod guarded_body;
pub mod head;
mod http1;
mod http2;
mod keep_alive;
mod per_address_limit;
mod response;
mod rewind;
pub mod tls;
mod write_timeout;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::state::shutdown::Shutdown;
use http1::Protocol;
use keep_alive::KeepAlive;
use per_address_limit::{AddressPermit, PerAddressLimit};
use tls::CurrentCertificate;
use write_timeout::WriteTimeout;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(75);
const PING: Duration = Duration::from_secs(20);
const STALLED: Duration = Duration::from_secs(20);
/// The pause after a failed accept, usually because no file descriptor is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("failed to listen on {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("failed to read {path}")]
    Pem { path: String, source: rustls::pki_types::pem::Error },
    #[error("failed to use the certificate and key")]
    Tls(#[from] rustls::Error),
}

/// The largest numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub per_address: usize,
    /// Connections that stay open although nobody has authenticated on them.
    pub unauthenticated: usize,
}

/// Everything that is needed to serve a connection.
#[derive(Clone, Debug)]
struct ConnectionContext {
    router: Router,
    peer: SocketAddr,
    keep_alive: Arc<KeepAlive>,
    long_polls_in_hyper: bool,
    /// Once cancelled, each response closes its connection, so that clients use other replicas.
    leaving: CancellationToken,
    /// Once cancelled, idle connections close.
    draining: CancellationToken,
}

pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<CurrentCertificate>,
    connections: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
    per_address: Arc<PerAddressLimit>,
    long_polls_in_hyper: bool,
    tasks: TaskTracker,
}

/// The permits that a connection holds until it ends.
struct ConnectionPermits {
    _permit: OwnedSemaphorePermit,
    _address: AddressPermit,
}

impl Listener {
    pub async fn bind(
        address: SocketAddr,
        tls: Option<CurrentCertificate>,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let connections = Arc::new(Semaphore::new(limits.connections));
        let unauthenticated = Arc::new(Semaphore::new(limits.unauthenticated));
        let (per_address, tasks) = (PerAddressLimit::new(limits.per_address), TaskTracker::new());
        Ok(Self {
            socket,
            address,
            tls,
            connections,
            unauthenticated,
            per_address,
            long_polls_in_hyper: false,
            tasks,
        })
    }

    /// With true, hyper serves long polls on HTTP/1 as all other requests.
    #[must_use]
    pub fn long_polls_in_hyper(self, long_polls_in_hyper: bool) -> Self {
        Self { long_polls_in_hyper, ..self }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a counter of open connections.
    pub fn connections(&self) -> Connections {
        Connections(self.tasks.clone())
    }

    /// Serves until the shutdown drains; then lets requests finish for a while.
    pub async fn run(self, router: Router, shutdown: Shutdown, drain: Duration) {
        while let Some((stream, peer, permits)) = self.next(&shutdown.draining).await {
            let context = ConnectionContext {
                router: router.clone(),
                peer,
                keep_alive: KeepAlive::new(Arc::clone(&self.unauthenticated)),
                long_polls_in_hyper: self.long_polls_in_hyper,
                leaving: shutdown.leaving.clone(),
                draining: shutdown.draining.clone(),
            };
            let tls = self.tls.as_ref().map(CurrentCertificate::acceptor);
            self.tasks.spawn(async move {
                connection(stream, tls, context).await;
                drop(permits);
            });
        }
        drop(self.socket);
        self.tasks.close();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                connections = self.tasks.len(),
                "connections were still open at the end of the drain"
            );
        }
    }

    /// Returns the next connection within the limits, or none once draining.
    async fn next(&self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr, ConnectionPermits)> {
        loop {
            // Beyond the limit, peers wait in the kernel's backlog.
            let permit = tokio::select! {
                () = stop.cancelled() => return None,
                permit = Arc::clone(&self.connections).acquire_owned() => permit.ok()?,
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => return None,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match self.per_address.acquire(peer.ip()) {
                    Some(address) => {
                        return Some((
                            stream,
                            peer,
                            ConnectionPermits { _permit: permit, _address: address },
                        ));
                    }
                    None => tracing::debug!(%peer, "refused a connection: too many from this address"),
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// A counter of open connections.
#[derive(Clone, Debug)]
pub struct Connections(TaskTracker);

impl Connections {
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, context: ConnectionContext) {
    // Small responses are sent at once.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(stream, STALLED);
    let Some(tls) = tls else { return http1::serve(stream, Protocol::Undecided, context).await };
    // Boxed: the memory of the handshake is freed afterwards.
    let Some(stream) = Box::pin(handshake(tls, stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(http2::serve(stream, Bytes::new(), context)).await;
    } else {
        http1::serve(stream, Protocol::Http1, context).await;
    }
}

async fn handshake(
    tls: TlsAcceptor,
    stream: WriteTimeout<TcpStream>,
) -> Option<Box<TlsStream<WriteTimeout<TcpStream>>>> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake timed out");
            None
        }
    }
}

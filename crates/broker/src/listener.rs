//! The accept loop: every wait of a connection has a deadline, so that silent sockets do not live for ever.
//!
//! | wait                                               | at most                                  |
//! |----------------------------------------------------|------------------------------------------|
//! | TLS handshake                                      | [`HANDSHAKE`]                            |
//! | first byte of the first request                    | [`HEAD`]                                 |
//! | head of a request, from its first byte to its last | [`HEAD`]                                 |
//! | first byte of the next request                     | [`IDLE`]                                 |
//! | next request on HTTP/2 while none is open          | [`IDLE`] to twice that                   |
//! | a peer on HTTP/2 that no longer answers pings      | [`PING`] twice                           |
//! | a peer that takes nothing of what we send          | [`STALLED`]                              |
//! | a request body                                     | 30 s, see `http/change.rs`               |
//! | the end, once told to stop                         | `drain` of the configuration             |
//!
//! | module     | what lives there                                                              |
//! |------------|-------------------------------------------------------------------------------|
//! | `lobby`    | HTTP/1: reads heads, holds polls that wait without hyper's buffers            |
//! | `head`     | is a head complete, is it a poll                                              |
//! | `answer`   | writes the answer to a poll                                                   |
//! | `exchange` | any other request on HTTP/1: once through hyper                               |
//! | `http2`    | HTTP/2                                                                        |
//! | `paced`    | a socket whose peer has to read                                               |
//! | `rewind`   | a stream of which something was read already                                  |
//! | `crowd`    | connections per address                                                       |

mod answer;
mod crowd;
mod exchange;
pub mod head;
mod http2;
mod lobby;
mod paced;
mod rewind;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crowd::{Crowd, Place};
use lobby::{Desk, Settled};
use paced::Paced;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(75);
const PING: Duration = Duration::from_secs(20);
const STALLED: Duration = Duration::from_secs(20);
/// After an accept that failed, usually for want of file descriptors.
const BREATH: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("cannot read {path}")]
    Pem { path: String, source: rustls::pki_types::pem::Error },
    #[error("cannot use the certificate and key")]
    Tls(#[from] rustls::Error),
}

/// Connections, at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub per_address: usize,
}

/// How a listener is told that the end is near.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Answers send their callers elsewhere.
    pub leaving: CancellationToken,
    /// Nobody comes in any more; connections on which nothing happens end.
    pub stop: CancellationToken,
}

pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
    crowd: Arc<Crowd>,
    tasks: TaskTracker,
}

/// What a connection takes up, until it has ended.
struct Room {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

impl Listener {
    pub async fn bind(
        address: SocketAddr,
        tls: Option<ServerConfig>,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let connections = Arc::new(Semaphore::new(limits.connections));
        let crowd = Crowd::new(limits.per_address);
        Ok(Self { socket, address, tls, connections, crowd, tasks: TaskTracker::new() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there are, now and later.
    pub fn connections(&self) -> Connections {
        Connections(self.tasks.clone())
    }

    /// Serves until told to stop; then lets requests finish for a while.
    pub async fn run(self, router: Router, end: End, drain: Duration) {
        while let Some((stream, peer, room)) = self.next(&end.stop).await {
            let desk =
                Desk { router: router.clone(), peer, leaving: end.leaving.clone(), stop: end.stop.clone() };
            let tls = self.tls.clone();
            self.tasks.spawn(async move {
                connection(stream, tls, desk).await;
                drop(room);
            });
        }
        drop(self.socket);
        self.tasks.close();
        if tokio::time::timeout(drain, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "not every connection ended in time");
        }
    }

    /// The next one that gets in. None when told to stop.
    async fn next(&self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr, Room)> {
        loop {
            // Beyond the limit, peers wait in the backlog of the kernel.
            let permit = tokio::select! {
                () = stop.cancelled() => return None,
                permit = Arc::clone(&self.connections).acquire_owned() => permit.ok()?,
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => return None,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match self.crowd.enter(peer.ip()) {
                    Some(place) => return Some((stream, peer, Room { _permit: permit, _place: place })),
                    None => tracing::debug!(%peer, "an address has as many connections as it may"),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }
}

/// Counts connections.
#[derive(Clone, Debug)]
pub struct Connections(TaskTracker);

impl Connections {
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, desk: Desk) {
    // Small answers are not to wait for more.
    let _ = stream.set_nodelay(true);
    let stream = Paced::new(stream, STALLED);
    let Some(tls) = tls else { return lobby::serve(stream, Settled::Open, desk).await };
    // Boxed: what a handshake needs is not carried along afterwards.
    let Some(stream) = Box::pin(handshake(tls, stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        Box::pin(http2::serve(stream, Bytes::new(), desk)).await;
    } else {
        lobby::serve(stream, Settled::Http1, desk).await;
    }
}

async fn handshake(tls: TlsAcceptor, stream: Paced<TcpStream>) -> Option<Box<TlsStream<Paced<TcpStream>>>> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            None
        }
    }
}

/// Reads a certificate chain and its key.
pub fn tls_config(certificate: &Path, key: &Path) -> Result<ServerConfig, ListenError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| ListenError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

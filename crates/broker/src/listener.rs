//! The accept loop: every wait of a connection has a deadline, so that silent sockets do not live for ever.
//!
//! | wait                                             | at most                                    |
//! |--------------------------------------------------|--------------------------------------------|
//! | TLS handshake                                    | [`HANDSHAKE`]                              |
//! | first request, version detection and headers in  | [`FIRST_REQUEST`]                          |
//! | next request on the same connection              | [`IDLE`]                                   |
//! | a peer on HTTP/2 that no longer answers pings    | [`PING`] twice                             |
//! | a request body                                   | 30 s, see `http/change.rs`                 |
//! | the end, once told to stop                       | [`DRAIN`]                                  |

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::access::origin::Peer;

const HANDSHAKE: Duration = Duration::from_secs(10);
const FIRST_REQUEST: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(75);
const PING: Duration = Duration::from_secs(20);
const DRAIN: Duration = Duration::from_secs(20);
/// After an accept that failed, usually for want of file descriptors.
const BREATH: Duration = Duration::from_millis(50);
const HEADER_BYTES: u32 = 16 * 1024;
const STREAMS: u32 = 256;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("cannot read {path}")]
    Pem { path: String, source: rustls::pki_types::pem::Error },
    #[error("cannot use the certificate and key")]
    Tls(#[from] rustls::Error),
}

pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
}

impl Listener {
    pub async fn bind(
        address: SocketAddr,
        tls: Option<ServerConfig>,
        most: usize,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        Ok(Self { socket, address, tls, connections: Arc::new(Semaphore::new(most)) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop; then lets requests finish for a while.
    pub async fn run(self, router: Router, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        loop {
            // Beyond the limit, peers wait in the backlog of the kernel.
            let permit = tokio::select! {
                () = stop.cancelled() => break,
                permit = Arc::clone(&self.connections).acquire_owned() => permit,
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok((stream, peer)) => (stream, Peer(peer.ip())),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                    continue;
                }
            };
            let (router, tls, stop) = (router.clone(), self.tls.clone(), stop.clone());
            tasks.spawn(async move {
                connection(stream, peer, tls, router, stop).await;
                drop(permit);
            });
        }
        tasks.close();
        if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "not every connection ended in time");
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    // Small answers are not to wait for more.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return serve(stream, peer, protocols(None), router, stop).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            serve(stream, peer, protocols(Some(h2)), router, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

/// HTTP/1, HTTP/2, or what the first bytes say where TLS has not settled it.
fn protocols(h2: Option<bool>) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper counts the time between requests as part of reading the next one's headers.
        .header_read_timeout(IDLE)
        .max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES);
    match h2 {
        Some(true) => builder.http2_only(),
        Some(false) => builder.http1_only(),
        None => builder,
    }
}

async fn serve<S>(
    stream: S,
    peer: Peer,
    builder: auto::Builder<TokioExecutor>,
    router: Router,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let service = hyper::service::service_fn({
        let asked = Arc::clone(&asked);
        move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer);
            asked.store(true, Ordering::Relaxed);
            router.clone().oneshot(request)
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut first = pin!(tokio::time::sleep(FIRST_REQUEST));
    let (mut stopping, mut waited) = (false, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended badly");
                }
                return;
            }
            () = first.as_mut(), if !waited => {
                waited = true;
                if !asked.load(Ordering::Relaxed) {
                    tracing::debug!("a connection asked for nothing");
                    return;
                }
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
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

//! One TLS connection, an agent's own or shared with others; one request and its response.
//!
//! A waiting agent costs only a task and a connection: the connection is driven by the task that waits on it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpSocket;
use tokio::sync::{Mutex, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::{Broker, Transport};

/// A little longer than the broker allows for a handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Agents per loopback address: a pair of addresses has a limited number of ports, and the broker limits the connections per
/// address.
const AGENTS_PER_ADDRESS: usize = 500;
const LARGEST: usize = 16 * 1024 * 1024;

/// The reason why there is no valid response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("connection closed: {0}")]
    Cut(String),
    #[error("refused with {status}: {body}")]
    Refused { status: StatusCode, body: String, retry_after: Option<Duration> },
    #[error("invalid response: {0}")]
    Wrong(&'static str),
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type Body = Full<Bytes>;
type Driver = http1::Connection<TokioIo<TlsStream<tokio::net::TcpStream>>, Body>;

/// Connects to brokers.
pub struct Dialer {
    own: TlsConnector,
    shared: TlsConnector,
    transport: Transport,
    handshakes: Semaphore,
    shared_wires: Vec<Mutex<Option<http2::SendRequest<Body>>>>,
}

pub enum Wire {
    /// The driver is none once the other side has closed the connection.
    Own {
        sender: http1::SendRequest<Body>,
        driver: Option<Box<Driver>>,
    },
    Shared(http2::SendRequest<Body>),
}

impl Dialer {
    pub fn new(authorities: &[u8], transport: Transport, agents: usize, handshakes: usize) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate?)?;
        }
        let connector = |protocol: &[u8]| {
            let roots = roots.clone();
            let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            // Agents of different clusters share no TLS session.
            config.resumption = rustls::client::Resumption::disabled();
            TlsConnector::from(Arc::new(config))
        };
        let shared_wires = match transport {
            Transport::Own => 0,
            Transport::Shared { agents: each } => agents.div_ceil(each.max(1)),
        };
        Ok(Self {
            own: connector(b"http/1.1"),
            shared: connector(b"h2"),
            transport,
            handshakes: Semaphore::new(handshakes.max(1)),
            shared_wires: (0..shared_wires).map(|_| Mutex::new(None)).collect(),
        })
    }

    /// Returns a connection for this agent, or its share of one.
    pub async fn connect(&self, broker: &Broker, number: usize) -> Result<Wire, RequestError> {
        match self.transport {
            Transport::Own => {
                let stream = self.handshake(&self.own, broker, number).await?;
                let mut builder = http1::Builder::new();
                builder.max_buf_size(16 * 1024);
                let (sender, driver) =
                    builder.handshake(TokioIo::new(stream)).await.map_err(|error| cut(&error))?;
                Ok(Wire::Own { sender, driver: Some(Box::new(driver)) })
            }
            Transport::Shared { .. } => {
                let number = self.transport.connection(number);
                let mut wire = self.shared_wires[number].lock().await;
                if let Some(sender) = wire.as_ref().filter(|sender| !sender.is_closed()) {
                    return Ok(Wire::Shared(sender.clone()));
                }
                let stream = self.handshake(&self.shared, broker, number).await?;
                let (sender, driver) = http2::Builder::new(TokioExecutor::new())
                    .handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| cut(&error))?;
                tokio::spawn(driver);
                *wire = Some(sender.clone());
                Ok(Wire::Shared(sender))
            }
        }
    }

    async fn handshake(
        &self,
        connector: &TlsConnector,
        broker: &Broker,
        number: usize,
    ) -> Result<TlsStream<tokio::net::TcpStream>, RequestError> {
        let failed = |what: &dyn std::fmt::Display| RequestError::Connect(what.to_string());
        let _turn = self.handshakes.acquire().await.map_err(|error| failed(&error))?;
        let dial = async {
            let tcp = dial(broker.address, number).await?;
            tcp.set_nodelay(true)?;
            connector.connect(broker.name.clone(), tcp).await
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, dial).await {
            Ok(stream) => stream.map_err(|error| failed(&error)),
            Err(_) => Err(failed(&"it took too long")),
        }
    }
}

/// Connects; to a loopback address, from several source addresses.
async fn dial(address: SocketAddr, number: usize) -> std::io::Result<tokio::net::TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        let index = number / AGENTS_PER_ADDRESS;
        let [.., high, low] = (index / 250 * 256 + index % 250 + 2).to_be_bytes();
        socket.bind(SocketAddr::from(([127, 0, high, low], 0)))?;
    }
    socket.connect(address).await
}

impl Wire {
    /// Sends a request and reads the complete response.
    pub async fn exchange(&mut self, request: Request<Body>) -> Result<Response, RequestError> {
        match self {
            Self::Own { sender, driver } => {
                let Some(alive) = driver.as_mut() else {
                    return Err(RequestError::Cut("the broker closed the connection".to_owned()));
                };
                let mut answer = pin!(async {
                    sender.ready().await.map_err(|error| cut(&error))?;
                    let response = sender.send_request(request).await.map_err(|error| cut(&error))?;
                    complete(response).await
                });
                tokio::select! {
                    answer = &mut answer => return answer,
                    _ = alive => {}
                }
                // The other side closed the connection; a response that it sent before still counts. The driver is dropped
                // with everything that was not sent.
                *driver = None;
                answer.await
            }
            Self::Shared(sender) => {
                sender.ready().await.map_err(|error| cut(&error))?;
                complete(sender.send_request(request).await.map_err(|error| cut(&error))?).await
            }
        }
    }
}

async fn complete(response: http::Response<hyper::body::Incoming>) -> Result<Response, RequestError> {
    let (parts, body) = response.into_parts();
    let body =
        Limited::new(body, LARGEST).collect().await.map_err(|error| RequestError::Cut(error.to_string()))?;
    Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
}

fn cut(error: &hyper::Error) -> RequestError {
    RequestError::Cut(error.to_string())
}

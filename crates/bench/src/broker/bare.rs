//! A minimal server for comparison with polls: axum, hyper and TLS as in the broker, and a handler that returns 304.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;
use brokkr_testkit::tls::Identity;
use brokkr_testkit::{Launch, Port, Process};
use http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::args::BareArgs;

/// The server as a process, so that its CPU time can be measured.
pub struct Bare {
    pub process: Process,
    pub address: SocketAddr,
    _port: Port,
}

impl Bare {
    pub async fn start(identity: &Identity, logs: &Path) -> Result<Self> {
        let port = Port::free()?;
        let program = brokkr_testkit::programs::program("brokkr-bench")?;
        let launch = Launch::new("bare", program)
            .args(["bare", "--listen", &port.address(), "--certificate"])
            .arg(&identity.certificate)
            .arg("--key")
            .arg(&identity.key);
        let process = Process::start(launch, logs)?;
        let address: SocketAddr = port.address().parse()?;
        let listens = async || TcpStream::connect(address).await.is_ok();
        process.ready_when(Duration::from_secs(30), listens).await?;
        Ok(Self { process, address, _port: port })
    }
}

/// Serves until it is killed.
pub async fn serve(args: &BareArgs) -> Result<()> {
    let chain = CertificateDer::pem_file_iter(&args.certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&args.key)?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    let path = "/api/v1/agents/{agent}/target-state";
    let router = Router::new().route(path, get(async || StatusCode::NOT_MODIFIED));
    let socket = TcpListener::bind(args.listen).await.context("cannot listen")?;
    loop {
        let (stream, _) = socket.accept().await?;
        let (tls, router) = (tls.clone(), router.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request| router.clone().oneshot(request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

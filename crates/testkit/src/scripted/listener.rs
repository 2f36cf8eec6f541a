//! TLS for the scripted broker. Only HTTP/1.1, because there an incomplete response is recognisable.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::tls::Identity;

/// Listens on a port that the kernel chooses, because this server is never restarted.
pub async fn serve(identity: &Identity, router: Router) -> Result<(SocketAddr, JoinHandle<()>)> {
    let tls = TlsAcceptor::from(Arc::new(config(identity)?));
    let socket = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on the loopback address")?;
    let address = socket.local_addr()?;
    let server = tokio::spawn(async move {
        // Aborting this task drops every connection.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = socket.accept().await {
            let (tls, router) = (tls.clone(), router.clone());
            connections.spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = TowerToHyperService::new(router);
                // Fails when a response is cut or the agent disconnects; tests do both.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Ok((address, server))
}

/// Returns the TLS settings for HTTP/1.1 with this certificate.
pub(crate) fn config(identity: &Identity) -> Result<ServerConfig> {
    let certificates =
        CertificateDer::pem_file_iter(&identity.certificate)?.collect::<std::result::Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&identity.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

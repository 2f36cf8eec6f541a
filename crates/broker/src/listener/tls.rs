//! The certificate of the listener, which is read again when its files change.
//!
//! Tools that renew certificates replace the files; nobody restarts the broker for that. The files are compared by
//! content, because a mounted Secret is replaced by changing a symbolic link. Open connections keep the certificate
//! they began with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::ids::Checksum;
use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::ListenError;

/// How often the files are compared.
const CHECK: Duration = Duration::from_secs(5);

/// The files, and what was read from them.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    /// What was read last, valid or not: an invalid certificate is reported once.
    read: Option<Checksum>,
    current: watch::Sender<Current>,
}

/// The certificate that new connections use. Clones follow the files.
#[derive(Clone)]
pub struct CurrentCertificate(watch::Receiver<Current>);

#[derive(Clone)]
struct Current(TlsAcceptor);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current(…)")
    }
}

impl CurrentCertificate {
    pub fn acceptor(&self) -> TlsAcceptor {
        self.0.borrow().0.clone()
    }
}

/// A certificate chain and its key, as PEM.
struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificates {
    /// Reads the files for the first time.
    pub async fn load(certificate: &Path, key: &Path) -> Result<Self, ListenError> {
        let pem = read(certificate, key).await?;
        let (current, _) = watch::channel(Current(acceptor(&pem, certificate, key)?));
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Self { certificate, key, read: Some(digest(&pem)), current })
    }

    pub fn current(&self) -> CurrentCertificate {
        CurrentCertificate(self.current.subscribe())
    }

    /// Follows the files until the broker stops.
    pub async fn follow(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                () = stop.cancelled() => return,
            }
            match self.reload().await {
                Ok(true) => tracing::info!(certificate = %self.certificate.display(), "certificate reloaded"),
                Ok(false) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "failed to reload the certificate; still using the previous one");
                }
            }
        }
    }

    /// Returns whether there is a new certificate. A file that is missing, or a certificate and a key that do not belong
    /// together, may be a renewal that is not complete yet: the next check decides.
    async fn reload(&mut self) -> Result<bool, ListenError> {
        let pem = match read(&self.certificate, &self.key).await {
            Ok(pem) => pem,
            Err(_) if self.read.is_none() => return Ok(false),
            Err(error) => {
                self.read = None;
                return Err(error);
            }
        };
        let read = Some(digest(&pem));
        if self.read == read {
            return Ok(false);
        }
        self.read = read;
        self.current.send_replace(Current(acceptor(&pem, &self.certificate, &self.key)?));
        Ok(true)
    }
}

async fn read(certificate: &Path, key: &Path) -> Result<Pem, ListenError> {
    let read = async |path: &Path| {
        let failed =
            |source| ListenError::Pem { path: path.display().to_string(), source: PemError::Io(source) };
        tokio::fs::read(path).await.map_err(failed)
    };
    Ok(Pem { certificate: read(certificate).await?, key: read(key).await? })
}

fn digest(pem: &Pem) -> Checksum {
    Checksum::of(&[&pem.certificate[..], &pem.key[..]].concat())
}

fn acceptor(pem: &Pem, certificate: &Path, key: &Path) -> Result<TlsAcceptor, ListenError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| ListenError::Pem { path, source }
    };
    let chain = CertificateDer::pem_slice_iter(&pem.certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed(certificate))?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(failed(key))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

//! The listener for health checks and metrics. Off by default.
//!
//! It stores nothing: the reconciler, which owns the state, answers each request. So the listener costs
//! nothing when idle, and an answer also proves that the reconciler works.

mod health;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use brokkr_metrics::{MEDIA_TYPE, text, this_process};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::metrics::{self, Metrics};
use crate::reconcile::counts::Counts;
use crate::version::VERSION;
use health::{Health, respond};

/// The maximum number of concurrent connections.
const CONNECTIONS: usize = 16;
/// The deadline of a connection, with its one request.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// The reconciler never waits for other systems: if it does not answer within this time, it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// The delay after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A request to the reconciler: the channel to which it sends its counts.
pub type Asked = oneshot::Sender<Counts>;

/// The state that the listener shows. Clones share it.
#[derive(Clone)]
pub struct Admin {
    metrics: Metrics,
    polling_interval: Duration,
    /// What the start currently waits for. Not used once the agent runs.
    start: Arc<watch::Sender<&'static str>>,
    reconciler: Arc<OnceLock<mpsc::UnboundedSender<Asked>>>,
    /// This is not the new version of an upgrade that is not confirmed. Kubernetes ends the former one when this one is ready.
    is_confirmed: Arc<AtomicBool>,
}

impl Admin {
    #[must_use]
    pub fn new(metrics: Metrics, polling_interval: Duration) -> Self {
        let start = Arc::new(watch::Sender::new("start"));
        let is_confirmed = Arc::new(AtomicBool::new(true));
        Self { metrics, polling_interval, start, reconciler: Arc::default(), is_confirmed }
    }

    /// Sets what the start waits for.
    pub fn starting(&self, what: &'static str) {
        self.start.send_replace(what);
    }

    /// Sets whether this process may be ready.
    pub fn set_confirmed(&self, is_confirmed: bool) {
        self.is_confirmed.store(is_confirmed, Ordering::Relaxed);
    }

    /// Returns the counts of the reconciler; none if it does not run or does not answer.
    pub async fn counts(&self) -> Option<Counts> {
        ask(self.reconciler.get()?).await
    }

    /// Ends the start, and returns the receiver of requests to the reconciler.
    pub fn running(&self) -> mpsc::UnboundedReceiver<Asked> {
        let (asking, asked) = mpsc::unbounded_channel();
        let _ = self.reconciler.set(asking);
        asked
    }

    pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
        let listener = TcpListener::bind(address).await;
        listener.with_context(|| format!("listen on {address} for health checks and metrics"))
    }

    /// Serves for as long as the process lives.
    pub async fn serve(self, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // Beyond the limit, peers wait in the backlog of the kernel.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let admin = self.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(CONNECTION_DEADLINE, admin.connection(stream)).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection to the admin listener");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self, stream: TcpStream) {
        let service = service_fn(move |request: Request<Incoming>| {
            let admin = self.clone();
            async move { Ok::<_, Infallible>(admin.answer(request.method(), request.uri().path()).await) }
        });
        // One request per connection: keep-alive is useless for a request every 30 seconds.
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_DEADLINE)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "connection to the admin listener failed");
        }
    }

    async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n");
        }
        match path {
            "/livez" => self.health().await.livez(),
            "/readyz" => self.health().await.readyz(),
            "/metrics" => respond(StatusCode::OK, MEDIA_TYPE, self.scrape().await),
            _ => plain(StatusCode::NOT_FOUND, "not found; use /livez, /readyz or /metrics\n"),
        }
    }

    async fn health(&self) -> Health {
        match self.reconciler.get() {
            None => Health::Starting(*self.start.borrow()),
            Some(reconciler) => match ask(reconciler).await {
                None => Health::Stuck,
                Some(counts) => Health::Running {
                    counts: Box::new(counts),
                    silence: self.metrics.silence(),
                    is_confirmed: self.is_confirmed.load(Ordering::Relaxed),
                },
            },
        }
    }

    async fn scrape(&self) -> String {
        let mut registry = Registry::with_prefix("brokkr_agent");
        self.metrics.register(&mut registry, self.polling_interval);
        let health = self.health().await;
        brokkr_metrics::gauge(
            &mut registry,
            "ready",
            "1 once the agent has joined and reconciles its target state",
            usize::from(health.is_ready()),
        );
        // The same series before the reconciler runs, with the value zero.
        let counts = if let Health::Running { counts, .. } = health { *counts } else { Counts::none() };
        metrics::register(&counts, &mut registry);
        this_process(&mut registry, VERSION);
        text(&registry)
    }
}

async fn ask(reconciler: &mpsc::UnboundedSender<Asked>) -> Option<Counts> {
    let (asked, answer) = oneshot::channel();
    reconciler.send(asked).ok()?;
    tokio::time::timeout(STUCK_AFTER, answer).await.ok()?.ok()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text)
}

#[cfg(test)]
mod tests;

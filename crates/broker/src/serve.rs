//! Wiring: pools, index, tasks, listener, shutdown. Reads top to bottom.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use sqlx::PgPool;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::assertion::Assertions;
use crate::access::limits::RateLimits;
use crate::access::tokens::Tokens;
use crate::admin::{self, admin_router};
use crate::args::ServeArgs;
use crate::broker::Broker;
use crate::http::contents::Contents;
use crate::http::quota::Usage;
use crate::index::Index;
use crate::listener::{End, Limits, ListenError, Listener, tls_config};
use crate::metrics::{FleetCount, Metrics};
use crate::router::router;
use crate::store::installation::installation_fetch;
use crate::store::schema::{SchemaError, schema_check};
use crate::store::{StoreError, connect};
use crate::tasks::event_tail::Streams;
use crate::tasks::outbox_tail::{OutboxTail, Poke};
use crate::tasks::presence::Presence;
use crate::tasks::refusals::Refusals;
use crate::tasks::standing::Standing;
use crate::tasks::webhooks::{WebhookSetupError, Webhooks};
use crate::tasks::{audit_chain, retention, silence, tidy};

/// The tail and the other tasks have their own connections: a rush of requests cannot hold them up.
const TASK_CONNECTIONS: u32 = 7;
/// Receivers may be many; what they do must not hold up the tail.
const WEBHOOK_CONNECTIONS: u32 = 3;
/// A database that starts at the same time as the broker is waited for.
const DATABASE_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Webhooks(#[from] WebhookSetupError),
    #[error("`tls_cert` and `tls_key` belong together: only one of them is set")]
    HalfTls,
    #[error("the outbox is no longer read")]
    Tail(#[source] Option<JoinError>),
}

/// A broker that serves.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    pub admin_address: Option<SocketAddr>,
    pub broker: Arc<Broker>,
    stop_tasks: CancellationToken,
    listening: JoinHandle<()>,
    tasks: TaskTracker,
    tail: JoinHandle<()>,
    drain_grace: Duration,
}

impl Server {
    pub async fn start(args: ServeArgs) -> Result<Self, ServeError> {
        let tls = match (&args.tls_cert, &args.tls_key) {
            (Some(certificate), Some(key)) => Some(tls_config(certificate, key)?),
            (None, None) => None,
            _ => return Err(ServeError::HalfTls),
        };
        let webhooks = Arc::new(Webhooks::new(&args.webhooks)?);
        let url = args.database.database_url.expose_secret();
        let pool = connect_patiently(url, args.database_connections).await?;
        schema_check(&pool).await?;
        let task_pool = connect(url, TASK_CONNECTIONS).await?;

        let installation = installation_fetch(&pool).await?;
        let index = Arc::new(Index::new(installation));
        let poke = Poke::default();
        let tail = OutboxTail::new(task_pool.clone(), Arc::clone(&index), poke.clone());
        let cursor = tail.load().await?;

        let (tasks, stop_tasks) = (TaskTracker::new(), CancellationToken::new());
        let presence = Presence::default();
        let standing = Standing::default();
        standing.look(&pool).await?;
        tasks.spawn(standing.clone().run(task_pool.clone(), stop_tasks.clone()));
        let tail = tasks.spawn(tail.run(cursor, stop_tasks.clone()));
        tasks.spawn(presence.clone().run(task_pool.clone(), stop_tasks.clone()));
        let (refusals, told) = Refusals::new();
        tasks.spawn(told.run(task_pool.clone(), stop_tasks.clone()));
        tasks.spawn(audit_chain::run(task_pool.clone(), stop_tasks.clone()));
        let streams = Streams::default();
        tasks.spawn(retention::run(task_pool.clone(), args.retention, stop_tasks.clone()));
        tasks.spawn(streams.clone().run(task_pool.clone(), Arc::clone(&index), stop_tasks.clone()));
        tasks.spawn(silence::run(task_pool.clone(), stop_tasks.clone()));
        tasks.spawn(tidy::run(task_pool, stop_tasks.clone()));
        let webhook_pool = connect(url, WEBHOOK_CONNECTIONS).await?;
        tasks.spawn(Arc::clone(&webhooks).run(webhook_pool, stop_tasks.clone()));
        tasks.close();

        let end = End::default();
        let broker = Arc::new(Broker {
            pool,
            installation,
            index,
            poke,
            presence,
            standing,
            streams,
            assertions: Assertions::new(installation),
            tokens: Tokens::default(),
            limits: RateLimits::new(args.rate_limits),
            usage: Usage::default(),
            refusals,
            trusted_proxies: args.trusted_proxies,
            contents: Contents::default(),
            webhooks,
            metrics: Metrics::default(),
            fleet: FleetCount::default(),
            leaving: end.leaving.clone(),
            draining: end.stop.clone(),
            drain_spread: args.drain / 2,
        });
        let encrypted = tls.is_some();
        let limits =
            Limits { connections: args.max_connections, per_address: args.max_connections_per_address };
        let listener = Listener::bind(args.listen, tls, limits).await?;
        let address = listener.address();
        let admin = match args.admin_listen {
            Some(listen) => Some(Listener::bind(listen, None, admin::LIMITS).await?),
            None => None,
        };
        let admin_address = admin.as_ref().map(Listener::address);
        if let Some(admin) = admin {
            let router = admin_router(Arc::clone(&broker), listener.connections());
            // Until the process ends: whoever asks sees how it drains.
            tokio::spawn(admin.run(router, End::default(), Duration::ZERO));
        }
        let listening = tokio::spawn(listener.run(router(Arc::clone(&broker)), end, args.drain));
        tracing::info!(%address, admin = ?admin_address, tls = encrypted, %installation, "serving");
        let drain_grace = args.drain_grace;
        Ok(Self { address, admin_address, broker, stop_tasks, listening, tasks, tail, drain_grace })
    }

    /// Waits until told to stop, or until it can no longer serve.
    pub async fn until(&mut self, told_to_stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        unless_it_ends(&mut self.tail, told_to_stop).await
    }

    /// Says that it is no longer ready; then answers what waits, lets requests finish, stores what is in memory.
    pub async fn stop(self) {
        tracing::info!(grace = ?self.drain_grace, "stopping");
        self.broker.leaving.cancel();
        tokio::time::sleep(self.drain_grace).await;
        self.broker.draining.cancel();
        // A listener that panicked has nothing left to drain.
        let _ = self.listening.await;
        self.stop_tasks.cancel();
        self.tasks.wait().await;
        self.broker.pool.close().await;
        tracing::info!("stopped");
    }
}

/// Without the tail every answer would be the same for ever: another process has to load anew.
async fn unless_it_ends(
    tail: &mut JoinHandle<()>,
    told_to_stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    tokio::select! {
        () = told_to_stop => Ok(()),
        ended = tail => {
            let error = ServeError::Tail(ended.err());
            tracing::error!(error = &error as &dyn std::error::Error, "cannot go on serving");
            Err(error)
        }
    }
}

async fn connect_patiently(url: &str, connections: u32) -> Result<PgPool, StoreError> {
    let until = tokio::time::Instant::now() + DATABASE_WITHIN;
    loop {
        match connect(url, connections).await {
            Err(error) if error.is_unavailable() && tokio::time::Instant::now() < until => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the database is waited for");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            connected => return connected,
        }
    }
}

/// SIGTERM or SIGINT.
pub async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tail_that_ended_ends_the_broker_with_an_error() {
        let mut running = tokio::spawn(std::future::pending());
        assert!(unless_it_ends(&mut running, async {}).await.is_ok());
        let mut ended = tokio::spawn(async {});
        let error = unless_it_ends(&mut ended, std::future::pending()).await;
        assert!(matches!(error, Err(ServeError::Tail(None))));
        let mut panicked = tokio::spawn(async { panic!("as a tail might") });
        let error = unless_it_ends(&mut panicked, std::future::pending()).await;
        assert!(matches!(error, Err(ServeError::Tail(Some(_)))));
    }
}

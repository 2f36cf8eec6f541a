//! Wiring: pools, index, tasks, listener, shutdown. Reads top to bottom.

mod database;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::system::DatabaseRole;
use secrecy::ExposeSecret as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::access::assertion::Assertions;
use crate::access::budgets::ReportBudgets;
use crate::access::limits::RateLimits;
use crate::access::sessions::Sessions;
use crate::access::tokens::Tokens;
use crate::admin::{self, admin_router};
use crate::args::ServeArgs;
use crate::listener::tls::Certificates;
use crate::listener::{Limits, ListenError, Listener};
use crate::metrics::{FleetCount, Metrics, StackCount};
use crate::router::router;
use crate::state::Broker;
use crate::state::body_budget::BodyBudget;
use crate::state::contents::Contents;
use crate::state::presence::Presence;
use crate::state::quota::Usage;
use crate::state::refusals::Refusals;
use crate::state::report_queue::ReportQueue;
use crate::state::shutdown::Shutdown;
use crate::state::streams::Streams;
use crate::state::views::Views;
use crate::state::webhooks::{WebhookSetupError, Webhooks};
use crate::store::StoreError;
use crate::store::schema::SchemaError;
use crate::tasks::{
    alerts, audit_chain, cleanup, event_tail, outcome_tail, presence, refusals, report_writer, restore_state,
    retention, rollouts, silent_agents, suspensions, webhooks,
};
use database::Database;

/// Connections without an authenticated caller get one part of this many.
const UNAUTHENTICATED_PARTS: usize = 16;

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
    #[error(
        "the database is behind a pooler that gives each transaction another session, which loses the broker's session \
         settings and prepared statements; set `pool_mode = session`, or connect to PostgreSQL directly"
    )]
    TransactionPooling,
    #[error(
        "the database role {:?} lacks privileges ({}); run `brokkr-broker migrate --serving-role {}` with the role that \
         owns the tables",
        .0.name, .0.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), .0.name
    )]
    MissingPrivileges(DatabaseRole),
    #[error("`tls_cert` and `tls_key` must be set together")]
    HalfTls,
    #[error("the task that reads the outbox stopped unexpectedly")]
    Tail(#[source] Option<JoinError>),
}

impl ServeError {
    /// Returns whether the database is the problem, and may work later.
    fn is_unavailable(&self) -> bool {
        match self {
            Self::Store(error) | Self::Schema(SchemaError::Store(error)) => {
                error.is_unavailable() && !error.is_misconfigured()
            }
            _ => false,
        }
    }
}

/// A running broker.
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
        let certificates = match (&args.tls_cert, &args.tls_key) {
            (Some(certificate), Some(key)) => Some(Certificates::load(certificate, key).await?),
            (None, None) => None,
            _ => return Err(ServeError::HalfTls),
        };
        let webhooks = Arc::new(Webhooks::new(args.webhooks.options())?);
        let url = args.database.database_url.expose_secret();
        let database = Database::open(url, args.database_connections).await?;
        let (installation, task_pool) = (database.installation, database.task_pool);
        let refusals = Refusals::default();

        let views = Views::new(Arc::clone(&database.index));
        let broker = Arc::new(Broker {
            installation,
            pool: database.pool,
            index: database.index,
            tail: database.notifier,
            access: Access {
                assertions: Assertions::new(installation),
                tokens: Tokens::default(),
                sessions: Sessions::default(),
                limits: RateLimits::new(args.rate_limits),
                budgets: ReportBudgets::new(args.rate_limits),
                positions: database.positions,
                trusted_proxies: args.trusted_proxies,
            },
            refusals: refusals.clone(),
            reports: ReportQueue::default(),
            presence: Presence::default(),
            restore: database.restore,
            history: database.history,
            streams: Streams::default(),
            views,
            contents: Contents::default(),
            bodies: BodyBudget::new(usize::try_from(args.max_body_bytes).unwrap_or(usize::MAX)),
            usage: Usage::default(),
            webhooks,
            metrics: Metrics::default(),
            fleet: FleetCount::default(),
            stack_metrics: StackCount::of(args.stack_metrics),
            shutdown: Shutdown::new(args.drain / 2),
        });

        let (tasks, stop_tasks) = (TaskTracker::new(), CancellationToken::new());
        let (pool, stop) = (|| task_pool.clone(), || stop_tasks.clone());
        let tail = tasks.spawn(database.outbox_tail.run(database.cursor, stop()));
        tasks.spawn(restore_state::run(broker.restore.clone(), pool(), stop()));
        tasks.spawn(presence::run(broker.presence.clone(), pool(), stop()));
        tasks.spawn(refusals::run(refusals, pool(), stop()));
        for _ in 0..report_writer::WRITERS {
            tasks.spawn(report_writer::run(Arc::clone(&broker), stop()));
        }
        tasks.spawn(alerts::run(Arc::clone(&broker), pool(), stop()));
        tasks.spawn(audit_chain::run(pool(), stop()));
        tasks.spawn(retention::run(pool(), args.retention.retention(), stop()));
        tasks.spawn(event_tail::run(broker.streams.clone(), pool(), Arc::clone(&broker.index), stop()));
        tasks.spawn(rollouts::run(Arc::clone(&broker), pool(), stop()));
        tasks.spawn(silent_agents::run(pool(), stop()));
        tasks.spawn(suspensions::run(Arc::clone(&broker), pool(), stop()));
        tasks.spawn(cleanup::run(pool(), stop()));
        tasks.spawn(webhooks::run(Arc::clone(&broker.webhooks), database.webhook_pool, stop()));
        let certificates = certificates.map(|certificates| {
            let current = certificates.current();
            tasks.spawn(certificates.follow(stop()));
            current
        });
        let limits = Limits {
            connections: args.max_connections,
            per_address: args.max_connections_per_address,
            unauthenticated: (args.max_connections / UNAUTHENTICATED_PARTS).max(1),
        };
        let encrypted = certificates.is_some();
        let listener = Listener::bind(args.listen, certificates, limits)
            .await?
            .long_polls_in_hyper(args.long_polls_in_hyper);
        // Nothing that is needed to serve waits for it.
        tasks.spawn(outcome_tail::run(Arc::clone(&broker.index), pool(), stop()));
        tasks.close();
        let address = listener.address();
        let admin = match args.admin_listen {
            Some(listen) => Some(Listener::bind(listen, None, admin::LIMITS).await?),
            None => None,
        };
        let admin_address = admin.as_ref().map(Listener::address);
        if let Some(admin) = admin {
            let router = admin_router(Arc::clone(&broker), listener.connections());
            // Serves until the process ends, so that metrics show the drain.
            tokio::spawn(admin.run(router, Shutdown::default(), Duration::ZERO));
        }
        let listening =
            tokio::spawn(listener.run(router(Arc::clone(&broker)), broker.shutdown.clone(), args.drain));
        tracing::info!(%address, admin = ?admin_address, tls = encrypted, %installation, "serving");
        let drain_grace = args.drain_grace;
        Ok(Self { address, admin_address, broker, stop_tasks, listening, tasks, tail, drain_grace })
    }

    /// Waits until a stop is requested, or until the broker can no longer serve.
    pub async fn until(&mut self, stop_requested: impl Future<Output = ()>) -> Result<(), ServeError> {
        unless_tail_ends(&mut self.tail, stop_requested).await
    }

    /// Reports that it is not ready, then answers long polls, lets requests finish, and stores what is in memory.
    pub async fn stop(self) {
        tracing::info!(grace = ?self.drain_grace, "stopping");
        self.broker.shutdown.leaving.cancel();
        tokio::time::sleep(self.drain_grace).await;
        self.broker.shutdown.draining.cancel();
        // A listener that panicked has nothing to drain.
        let _ = self.listening.await;
        self.stop_tasks.cancel();
        self.tasks.wait().await;
        self.broker.pool.close().await;
        tracing::info!("stopped");
    }
}

/// Fails when the outbox tail ends: without it the index never changes again, and the process has to restart.
async fn unless_tail_ends(
    tail: &mut JoinHandle<()>,
    stop_requested: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    tokio::select! {
        () = stop_requested => Ok(()),
        ended = tail => {
            let error = ServeError::Tail(ended.err());
            tracing::error!(error = &error as &dyn std::error::Error, "failed to keep the index up to date; stopping");
            Err(error)
        }
    }
}

/// Resolves on SIGTERM or SIGINT.
pub async fn stop_requested() {
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
    async fn a_tail_that_ends_stops_the_broker_with_an_error() {
        let mut running = tokio::spawn(std::future::pending());
        assert!(unless_tail_ends(&mut running, async {}).await.is_ok());
        let mut ended = tokio::spawn(async {});
        let error = unless_tail_ends(&mut ended, std::future::pending()).await;
        assert!(matches!(error, Err(ServeError::Tail(None))));
        let mut panicked = tokio::spawn(async { panic!("as a tail might") });
        let error = unless_tail_ends(&mut panicked, std::future::pending()).await;
        assert!(matches!(error, Err(ServeError::Tail(Some(_)))));
    }
}

//! Metrics that are read on each scrape: sizes, lags, pools.

use std::time::{Duration, Instant};

use brokkr_metrics::{gauge, seconds, text, this_process};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::listener::Connections;
use crate::state::Broker;
use crate::store::failures;

/// How long a scrape waits for a database connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Sender {
    caller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

/// Returns all metrics as text.
pub async fn scrape(broker: &Broker, connections: &Connections) -> String {
    let mut registry = Registry::with_prefix("brokkr");
    broker.metrics.register(&mut registry);
    serving(&mut registry, broker, connections);
    index(&mut registry, broker);
    let reachable = database(&mut registry, broker).await;
    broker.fleet.register(&mut registry, &broker.pool, reachable).await;
    broker.stack_metrics.register(&mut registry, &broker.pool, reachable).await;
    this_process(&mut registry, env!("CARGO_PKG_VERSION"));
    text(&registry)
}

fn serving(registry: &mut Registry, broker: &Broker, connections: &Connections) {
    gauge(registry, "connections", "Client connections", connections.count());
    gauge(registry, "long_polls_waiting", "Waiting long polls", broker.index.waiting());
    gauge(
        registry,
        "agents_seen",
        "Agents that polled this replica since it started",
        broker.presence.count(),
    );
    gauge(
        registry,
        "reports_waiting",
        "Batches of reports that wait to be stored with those of other agents",
        broker.reports.waiting(),
    );
    let (authenticated, unauthenticated) = broker.bodies.used();
    let bodies = Family::<Sender, Gauge>::default();
    for (caller, bytes) in [("authenticated", authenticated), ("unauthenticated", unauthenticated)] {
        bodies.get_or_create(&Sender { caller }).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    registry.register("request_body_bytes", "Memory used by request bodies", bodies);
    gauge(
        registry,
        "draining",
        "1 while the replica stops",
        usize::from(broker.shutdown.leaving.is_cancelled()),
    );
    gauge(
        registry,
        "on_hold",
        "1 while the installation is on hold because its database was restored to an earlier state",
        usize::from(broker.restore.hold().is_some()),
    );
}

fn index(registry: &mut Registry, broker: &Broker) {
    let (agents, stacks) = {
        let snapshot = broker.index.snapshot();
        (snapshot.agents(), snapshot.stacks())
    };
    gauge(registry, "index_agents", "Agents in the index", agents);
    gauge(registry, "index_stacks", "Stacks in the index, including deleted ones that agents hold", stacks);
    let seen = broker.index.freshness();
    let behind = seen.ceiling.saturating_sub(seen.position.horizon);
    gauge(
        registry,
        "tail_lag_transactions",
        "Number of transaction ids between the oldest open transaction and the newest transaction, at the \
         tail's last read",
        usize::try_from(behind).unwrap_or(usize::MAX),
    );
    seconds(
        registry,
        "tail_lag_seconds",
        "Time since the outbox was last read",
        seen.at.elapsed().as_secs_f64(),
    );
}

/// Returns whether a database connection is available.
async fn database(registry: &mut Registry, broker: &Broker) -> bool {
    let pool = &broker.pool;
    let (open, idle) = (i64::from(pool.size()), i64::try_from(pool.num_idle()).unwrap_or(i64::MAX));
    let connections = Family::<State, Gauge>::default();
    connections.get_or_create(&State { state: "idle" }).set(idle);
    connections.get_or_create(&State { state: "used" }).set((open - idle).max(0));
    registry.register("database_connections", "Connections to the database for requests", connections);
    gauge(
        registry,
        "database_connections_limit",
        "Maximum number of database connections for requests",
        usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
    );
    let started = Instant::now();
    // An acquired connection is released at once; a timeout counts as one second.
    let reachable = matches!(tokio::time::timeout(ACQUIRE_TIMEOUT, pool.acquire()).await, Ok(Ok(_)));
    seconds(
        registry,
        "database_wait_seconds",
        "Time that this scrape waited for a database connection; at most 1 second",
        started.elapsed().as_secs_f64(),
    );
    let failed = Family::<Action, Counter>::default();
    for (action, count) in failures::counted() {
        failed.get_or_create(&Action { action }).inc_by(count);
    }
    registry.register("statements_failed", "Failed database statements, by action", failed);
    reachable
}

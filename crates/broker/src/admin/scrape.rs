//! What is read at the moment of asking: sizes, lags, pools.

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

/// Longer than this, a connection to the database is not waited for.
const ACQUIRE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

/// Everything, as text.
pub async fn scrape(broker: &Broker, connections: &Connections) -> String {
    let mut registry = Registry::with_prefix("brokkr");
    broker.metrics.register(&mut registry);
    serving(&mut registry, broker, connections);
    index(&mut registry, broker);
    let reachable = database(&mut registry, broker).await;
    broker.fleet.register(&mut registry, &broker.pool, reachable).await;
    this_process(&mut registry, env!("CARGO_PKG_VERSION"));
    text(&registry)
}

fn serving(registry: &mut Registry, broker: &Broker, connections: &Connections) {
    gauge(registry, "connections", "Connections of agents and people", connections.count());
    gauge(registry, "waiters", "Long polls that wait here", broker.index.waiting());
    gauge(
        registry,
        "agents_seen",
        "Agents that asked this replica since it started",
        broker.presence.count(),
    );
    gauge(registry, "draining", "1 once told to stop", usize::from(broker.shutdown.leaving.is_cancelled()));
    gauge(
        registry,
        "on_hold",
        "1 while the installation is on hold, because its database went back in time",
        usize::from(broker.restore.hold().is_some()),
    );
}

fn index(registry: &mut Registry, broker: &Broker) {
    let (agents, stacks) = {
        let snapshot = broker.index.snapshot();
        (snapshot.agents(), snapshot.stacks())
    };
    gauge(registry, "index_agents", "Agents in the index", agents);
    gauge(registry, "index_stacks", "Stacks in the index, deleted ones that agents hold included", stacks);
    let seen = broker.index.freshness();
    let behind = seen.ceiling.saturating_sub(seen.position.horizon);
    gauge(
        registry,
        "tail_lag_transactions",
        "Transactions begun that the outbox tail has not passed",
        usize::try_from(behind).unwrap_or(usize::MAX),
    );
    seconds(registry, "tail_lag_seconds", "Since the outbox was last read", seen.at.elapsed().as_secs_f64());
}

/// Answers whether there is a connection to be had.
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
        "Connections to the database for requests, at most",
        usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
    );
    let started = Instant::now();
    // One that comes is given back at once; one that does not is as good as a second.
    let reachable = matches!(tokio::time::timeout(ACQUIRE, pool.acquire()).await, Ok(Ok(_)));
    seconds(
        registry,
        "database_wait_seconds",
        "How long a connection to the database had to be waited for just now; 1 is the most",
        started.elapsed().as_secs_f64(),
    );
    let failed = Family::<Action, Counter>::default();
    for (action, count) in failures::counted() {
        failed.get_or_create(&Action { action }).inc_by(count);
    }
    registry.register("statements_failed", "Statements that failed, by what they were for", failed);
    reachable
}

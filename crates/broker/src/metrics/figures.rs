//! What is read at the moment of asking: sizes, lags, pools.

use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::process;
use crate::broker::Broker;
use crate::listener::Connections;
use crate::store::failures;

pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
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
    database(&mut registry, broker).await;
    this_process(&mut registry);
    let mut text = String::new();
    // Writing into memory does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    registry.register(name, help, ConstGauge::new(value));
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
    gauge(registry, "draining", "1 once told to stop", usize::from(broker.leaving.is_cancelled()));
}

fn index(registry: &mut Registry, broker: &Broker) {
    let (agents, stacks) = {
        let picture = broker.index.picture();
        (picture.agents(), picture.stacks())
    };
    gauge(registry, "index_agents", "Agents in the index", agents);
    gauge(registry, "index_stacks", "Stacks in the index, deleted ones that agents hold included", stacks);
    let seen = broker.index.seen();
    let behind = seen.ceiling.saturating_sub(seen.position.horizon);
    gauge(
        registry,
        "tail_lag_transactions",
        "Transactions begun that the outbox tail has not passed",
        usize::try_from(behind).unwrap_or(usize::MAX),
    );
    let lag = ConstGauge::new(seen.at.elapsed().as_secs_f64());
    registry.register("tail_lag_seconds", "Since the outbox was last read", lag);
}

async fn database(registry: &mut Registry, broker: &Broker) {
    let pool = &broker.pool;
    let (open, idle) = (i64::from(pool.size()), i64::try_from(pool.num_idle()).unwrap_or(i64::MAX));
    let connections = Family::<State, Gauge>::default();
    connections.get_or_create(&State { state: "idle" }).set(idle);
    connections.get_or_create(&State { state: "used" }).set((open - idle).max(0));
    registry.register("database_connections", "Connections to the database for requests", connections);
    let started = Instant::now();
    // One that comes is given back at once; one that does not is as good as a second.
    let _ = tokio::time::timeout(ACQUIRE, pool.acquire()).await;
    let waited = ConstGauge::new(started.elapsed().as_secs_f64());
    registry.register(
        "database_wait_seconds",
        "How long a connection to the database had to be waited for just now; 1 is the most",
        waited,
    );
    let failed = Family::<Action, Counter>::default();
    for (action, count) in failures::counted() {
        failed.get_or_create(&Action { action }).inc_by(count);
    }
    registry.register("statements_failed", "Statements that failed, by what they were for", failed);
}

fn this_process(registry: &mut Registry) {
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program", build);
    if let Some(bytes) = process::resident_bytes() {
        registry.register("process_resident_memory_bytes", "Memory of the process", ConstGauge::new(bytes));
    }
    if let Some(files) = process::open_files() {
        registry.register(
            "process_open_files",
            "Open files of the process, sockets included",
            ConstGauge::new(files),
        );
    }
    if let Some(seconds) = process::cpu_seconds() {
        registry.register("process_cpu_seconds", "Processor time used", ConstCounter::new(seconds));
    }
}

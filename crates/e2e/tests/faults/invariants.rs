//! Invariants that hold in spite of every fault, read from the proxy's trace of the agent's requests and from the API server's
//! audit log.
//!
//! The numbers are used in the failure messages: S1 no foreign object is written, S2 no Kubernetes object
//! goes back to an older version of its stack, S7 a delete names the UID of its object, S9 no object is
//! applied before the stack's record names the version. The tests of single rows of the fault matrix check
//! further invariants: S8 a wrong, empty or incomplete answer changes nothing, S12 every report is counted
//! once, S22 stored reports are bounded, L5 the desired state is enforced while the broker is unavailable.

use std::collections::BTreeMap;

use anyhow::Result;
use brokkr_testkit::proxy::Exchange;
use jiff::Timestamp;
use serde_json::Value;

use crate::world::{FaultWorld, summary};

const SEQUENCE: &str = "brokkr.io/sequence";
const STACK: &str = "brokkr.io/stack-id";

pub async fn assert_all(world: &FaultWorld) -> Result<()> {
    let trace = world.api_proxy.trace();
    only_ours_is_written(world, &trace)?;
    deletes_carry_a_uid(world, &trace);
    sequences_never_go_back(&trace);
    records_come_first(&trace);
    Ok(())
}

fn is_record(exchange: &Exchange) -> bool {
    exchange.request.resource.as_ref().is_some_and(|path| path.group == "brokkr.io")
}

/// Whether it is an Event about a record. Kubernetes keeps those of cluster-scoped objects in the namespace `default`.
fn is_event_about_a_record(exchange: &Exchange) -> bool {
    let is_event = exchange.request.resource.as_ref().is_some_and(|path| path.resource == "events");
    is_event && exchange.request.json()["involvedObject"]["apiVersion"] == "brokkr.io/v1"
}

/// S1: the agent writes only its own and its stacks' objects.
fn only_ours_is_written(world: &FaultWorld, trace: &[Exchange]) -> Result<()> {
    let is_stack_object = |path: &str, name: &str| path.contains(&world.tag) && !name.starts_with("theirs");
    for exchange in trace.iter().filter(|exchange| exchange.request.is_write() && exchange.succeeded()) {
        let Some(path) = &exchange.request.resource else { continue };
        let in_agent_namespace = path.namespace.as_deref() == Some(world.agent.namespace());
        let name = path.name.as_deref().unwrap_or_default();
        assert!(
            in_agent_namespace
                || is_record(exchange)
                || is_event_about_a_record(exchange)
                || is_stack_object(&exchange.request.path, name),
            "S1: the agent wrote a foreign object: {}",
            summary(exchange)
        );
        assert!(
            exchange.request.method != http::Method::DELETE || !name.is_empty(),
            "S1: the agent deleted a whole collection"
        );
    }
    for request in world.agent.requests(world.started)? {
        // What Events are about is checked above.
        let is_event = request.resource == "events" && request.namespace == "default";
        let is_agents_own =
            is_event || request.namespace == world.agent.namespace() || request.group == "brokkr.io";
        let changed = request.is_write() && request.code < 300 && !request.resource.is_empty();
        let reviews = request.group.ends_with("k8s.io") && request.resource.ends_with("reviews");
        assert!(
            !changed || is_agents_own || reviews || is_stack_object(&request.uri, &request.name),
            "S1: according to the audit log the agent wrote a foreign object: {request:?}"
        );
    }
    Ok(())
}

/// S7: another object under the same name is never hit.
fn deletes_carry_a_uid(world: &FaultWorld, trace: &[Exchange]) {
    // In the agent's own namespace, deletes need no UID: the names of cached content and shards are unique.
    let in_agent_namespace = |exchange: &Exchange| {
        let path = exchange.request.resource.as_ref();
        path.is_some_and(|path| path.namespace.as_deref() == Some(world.agent.namespace()))
    };
    let deletes = trace.iter().filter(|exchange| exchange.request.method == http::Method::DELETE);
    for exchange in deletes.filter(|exchange| !is_record(exchange) && !in_agent_namespace(exchange)) {
        let options = exchange.request.json();
        assert!(
            options["preconditions"]["uid"].is_string(),
            "S7: a delete that would hit whatever has that name: {} {options}",
            summary(exchange)
        );
    }
}

/// S2: no object goes back to an older version of its stack. Requests are compared in the order in which the
/// API server executed them.
fn sequences_never_go_back(trace: &[Exchange]) {
    let mut applied: Vec<&Exchange> = trace
        .iter()
        .filter(|exchange| exchange.request.is_apply() && exchange.succeeded() && !is_record(exchange))
        .collect();
    applied.sort_by_key(|exchange| exchange.order);
    let mut highest: BTreeMap<(String, String), i64> = BTreeMap::new();
    for exchange in applied {
        let body = exchange.request.json();
        let annotations = &body["metadata"]["annotations"];
        let sequence = number(&annotations[SEQUENCE]);
        let stack = annotations[STACK].as_str().unwrap_or_default().to_owned();
        let before = highest.entry((exchange.request.path.clone(), stack)).or_default();
        assert!(*before <= sequence, "S2: {} went from {before} back to {sequence}", summary(exchange));
        *before = sequence;
    }
}

/// S9: no object is applied before the stack's record names the version.
fn records_come_first(trace: &[Exchange]) {
    let records: Vec<Intention> = trace.iter().filter_map(Intention::of).collect();
    for apply in trace.iter().filter(|exchange| exchange.request.is_apply() && !is_record(exchange)) {
        let body = apply.request.json();
        let annotations = &body["metadata"]["annotations"];
        let sequence = number(&annotations[SEQUENCE]);
        let recorded = records.iter().any(|record| {
            record.stack == annotations[STACK] && record.sequence >= sequence && record.written <= apply.at
        });
        assert!(recorded, "S9: applied before the record named its version: {}", summary(apply));
    }
}

/// What a record announces before the agent writes: the stack, and the sequence id that its objects will get
/// as an annotation (the record's field `spec.stamp`).
struct Intention {
    stack: Value,
    sequence: i64,
    written: Timestamp,
}

impl Intention {
    fn of(exchange: &Exchange) -> Option<Self> {
        // A write whose answer was lost may have been stored, and the next run continues from it.
        let is_unknown = exchange.server_status.is_none();
        let stored =
            is_record(exchange) && exchange.request.is_write() && (exchange.succeeded() || is_unknown);
        let spec = exchange.request.json()["spec"].take();
        let written = exchange.finished.or(is_unknown.then_some(exchange.at)).filter(|_| stored)?;
        Some(Self { stack: spec["stackId"].clone(), sequence: number(&spec["stamp"]), written })
    }
}

/// Sequence ids are text in some places and numbers in others.
fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

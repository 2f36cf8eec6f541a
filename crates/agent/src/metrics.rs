//! The metrics of the agent.
//!
//! No metric has a label for stacks or objects, so the number of series does not grow with them. Current
//! values are collected on request (see `admin.rs`). `docs/metrics.md` explains each metric; a test compares
//! the page with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brokkr_metrics::{gauge, seconds};
use http::StatusCode;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::{ApplyReason, Step, StepResult};
use crate::reconcile::counts::Counts;
use crate::reconcile::passes::Outcome;

/// Buckets for the duration of a reconciliation, in seconds. It may wait for a namespace for days.
const PASSES: [f64; 10] = [0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// Buckets for the duration of a request, in seconds. A request is abandoned after 30.
const REQUESTS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    condition: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The counters. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    started: Instant,
    reconciles: Family<OutcomeLabels, Counter>,
    durations: Histogram,
    steps: Family<StepLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    request_durations: Histogram,
    repairs: Counter,
    polls_failed: Counter,
    responses_refused: Family<ReasonLabels, Counter>,
    reports_waiting: Gauge,
    key_since: Gauge,
    key_life: Gauge,
    /// When the broker last answered a poll, in milliseconds after the start.
    answered: Arc<AtomicU64>,
}

/// Why responses are refused: each is shown from the start, so that its first increase is visible.
const REFUSED: [&str; 5] =
    ["epoch_in_future", "horizon_too_high", "sequence_too_high", "sequence_id_reused", "position_not_issued"];

impl Default for Metrics {
    fn default() -> Self {
        let responses_refused = Family::<ReasonLabels, Counter>::default();
        for reason in REFUSED {
            let _ = responses_refused.get_or_create(&ReasonLabels { reason });
        }
        Self {
            started: Instant::now(),
            reconciles: Family::default(),
            durations: Histogram::new(PASSES),
            steps: Family::default(),
            requests: Family::default(),
            request_durations: Histogram::new(REQUESTS),
            repairs: Counter::default(),
            polls_failed: Counter::default(),
            responses_refused,
            reports_waiting: Gauge::default(),
            key_since: Gauge::default(),
            key_life: Gauge::default(),
            answered: Arc::default(),
        }
    }
}

impl Metrics {
    /// Counts a finished reconciliation.
    pub fn reconciled(&self, outcome: Outcome, took: Duration) {
        self.reconciles.get_or_create(&OutcomeLabels { outcome: outcome.into() }).inc();
        self.durations.observe(took.as_secs_f64());
    }

    /// Counts an executed step.
    pub fn carried_out(&self, step: &Step, answer: &StepResult) {
        let outcome: &'static str = match answer {
            StepResult::Failed(failure) => failure.class.into(),
            _ => "done",
        };
        self.steps.get_or_create(&StepLabels { step: step.name(), outcome }).inc();
        if let (Step::Apply { why, .. }, StepResult::Applied { seen, .. }) = (step, answer) {
            let put_back = match why {
                ApplyReason::Deliver => false,
                ApplyReason::Repair | ApplyReason::PutBack => true,
                ApplyReason::Sweep { version } => *version != seen.version,
            };
            if put_back {
                self.repairs.inc();
            }
        }
    }

    /// Counts a request to the API server; `status` is none if there was no response.
    pub fn asked(&self, verb: &'static str, status: Option<StatusCode>, took: Duration) {
        self.requests.get_or_create(&RequestLabels { verb, status: status_class(status) }).inc();
        self.request_durations.observe(took.as_secs_f64());
    }

    /// Records that the broker answered a poll.
    pub fn heard(&self) {
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered.store(since, Ordering::Relaxed);
    }

    /// Counts a failed poll.
    pub fn unheard(&self) {
        self.polls_failed.inc();
    }

    /// Counts a response that cannot be from an honest broker, or is from another one than before.
    pub fn refused(&self, reason: &'static str) {
        self.responses_refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub fn reports_waiting(&self, count: usize) {
        self.reports_waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the maximum intended age of the key.
    pub fn key_life(&self, life: Duration) {
        self.key_life.set(i64::try_from(life.as_secs()).unwrap_or(i64::MAX));
    }

    /// Sets the time at which the agent got its key.
    pub fn key_since(&self, since: Timestamp) {
        self.key_since.set(since.as_second());
    }

    /// Returns the time since the last answer of the broker, or since the start.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let answered = Duration::from_millis(self.answered.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(answered)
    }

    pub(crate) fn register(&self, registry: &mut Registry, polling_interval: Duration) {
        registry.register(
            "reconciles",
            "Finished reconciliations of stacks, by outcome",
            self.reconciles.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Duration of a reconciliation of a stack",
            self.durations.clone(),
        );
        registry.register("steps", "Executed steps, by result", self.steps.clone());
        registry.register("api_requests", "Requests to the API server for stacks", self.requests.clone());
        registry.register(
            "api_request_duration_seconds",
            "Duration of a request to the API server for a stack",
            self.request_durations.clone(),
        );
        registry.register(
            "drift_repairs",
            "Objects that were repaired after others changed them",
            self.repairs.clone(),
        );
        registry.register("polls_failed", "Failed polls of the broker", self.polls_failed.clone());
        registry.register(
            "responses_refused",
            "Responses of the broker that were refused, by reason",
            self.responses_refused.clone(),
        );
        registry.register(
            "reports_waiting",
            "Reports that the broker has not acknowledged yet",
            self.reports_waiting.clone(),
        );
        registry.register(
            "key_since_timestamp_seconds",
            "Time at which the agent got its key, in seconds since 1970",
            self.key_since.clone(),
        );
        registry.register(
            "key_life_seconds",
            "Maximum intended age of the agent's key",
            self.key_life.clone(),
        );
        seconds(
            registry,
            "broker_silence_seconds",
            "Time since the broker last answered a poll",
            self.silence().as_secs_f64(),
        );
        seconds(
            registry,
            "polling_interval_seconds",
            "How long one long poll stays open if nothing changes",
            polling_interval.as_secs_f64(),
        );
    }
}

/// Registers the counts of the reconciler.
pub(crate) fn register(counts: &Counts, registry: &mut Registry) {
    let stacks = Family::<StateLabels, Gauge>::default();
    for (state, count) in &counts.stacks {
        stacks.get_or_create(&StateLabels { state: (*state).into() }).set(*count);
    }
    registry.register("stacks", "Stacks, by phase", stacks);
    let conditions = Family::<ConditionLabels, Gauge>::default();
    for ((condition, status), count) in &counts.conditions {
        let labels = ConditionLabels { condition: condition.to_string(), status: status.to_string() };
        conditions.get_or_create(&labels).set(*count);
    }
    registry.register("stack_conditions", "Stacks, by condition and status", conditions);
    gauge(registry, "objects", "Objects that the stacks own", counts.objects);
    gauge(registry, "watches", "Running watches", counts.watches);
    gauge(registry, "watches_unsynced", "Watches without a complete list", counts.unsynced);
    gauge(registry, "active", "1 if the agent is ACTIVE at the broker", usize::from(counts.active));
    gauge(
        registry,
        "writes_suspended",
        "1 if the agent has stopped writing because another process uses its identity",
        usize::from(counts.writes_suspended.is_some()),
    );
}

/// Returns the label for a status. Conflicts and overload are expected, and so counted separately.
fn status_class(status: Option<StatusCode>) -> &'static str {
    match status.map(|status| status.as_u16()) {
        None => "none",
        Some(200..=299) => "2xx",
        Some(300..=399) => "3xx",
        Some(409) => "409",
        Some(429) => "429",
        Some(400..=499) => "4xx",
        Some(_) => "5xx",
    }
}

//! Counters of this replica and figures about the fleet.
//!
//! Nothing has a label per agent, and only the stacks that the operator lists have series of their own: the number of series
//! does not depend on the size of the fleet.
//! `docs/metrics.md` explains each metric; a test compares both.
//!
//! | module    | contents                                           |
//! |-----------|----------------------------------------------------|
//! | `fleet`   | figures about the fleet, cached                    |
//! | `stacks`  | figures about listed stacks, cached                |

mod fleet;
mod stacks;

use std::time::Duration;

use brokkr_api::report::{Report, Transition};
use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use fleet::FleetCount;
pub use stacks::{BadStackName, ListedStack, StackCount};

/// Seconds. Long polls take up to five minutes.
const BUCKETS: [f64; 11] = [0.002, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// Seconds. A cluster may be offline for days.
const DELIVERIES: [f64; 11] = [0.5, 1.0, 2.5, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86400.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    method: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Took {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reported {
    transition: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    reason: &'static str,
}

/// Why the body of a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBody {
    /// Larger than its route accepts.
    TooLarge,
    /// Did not arrive in time.
    Slow,
    /// The connection ended before the body did.
    Truncated,
    /// The memory for request bodies is used up.
    Busy,
    /// Differs from the body that the agent signed.
    NotSigned,
}

impl RefusedBody {
    const ALL: [Self; 5] = [Self::TooLarge, Self::Slow, Self::Truncated, Self::Busy, Self::NotSigned];

    fn label(self) -> Refused {
        let reason = match self {
            Self::TooLarge => "too_large",
            Self::Slow => "slow",
            Self::Truncated => "truncated",
            Self::Busy => "busy",
            Self::NotSigned => "not_signed",
        };
        Refused { reason }
    }
}

/// The counters. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Answered, Counter>,
    durations: Family<Took, Histogram, fn() -> Histogram>,
    wakes: Counter,
    reports: Family<Reported, Counter>,
    deliveries: Histogram,
    refused_bodies: Family<Refused, Counter>,
    refused_positions: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let reports = Family::<Reported, Counter>::default();
        // Initialised with zero: an increase from nothing to one would not be visible.
        for transition in Transition::KNOWN {
            let _ = reports.get_or_create(&Reported { transition: transition.to_string() });
        }
        let refused_bodies = Family::<Refused, Counter>::default();
        for reason in RefusedBody::ALL {
            let _ = refused_bodies.get_or_create(&reason.label());
        }
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            wakes: Counter::default(),
            reports,
            deliveries: Histogram::new(DELIVERIES),
            refused_bodies,
            refused_positions: Counter::default(),
        }
    }
}

impl Metrics {
    /// Counts a response. The route is that of the table, not the path.
    pub fn answered(&self, route: &str, method: &Method, status: StatusCode, took: Duration) {
        let route = if route.is_empty() { "unknown" } else { route }.to_owned();
        let answered = Answered { route: route.clone(), method: known(method), status: class(status) };
        self.requests.get_or_create(&answered).inc();
        self.durations.get_or_create(&Took { route }).observe(took.as_secs_f64());
    }

    /// Counts a woken long poll.
    pub fn woken(&self) {
        self.wakes.inc();
    }

    /// Counts a refused body.
    pub fn body_refused(&self, reason: RefusedBody) {
        self.refused_bodies.get_or_create(&reason.label()).inc();
    }

    /// Counts a request with a position that this broker did not issue.
    pub fn position_refused(&self) {
        self.refused_positions.inc();
    }

    /// Counts a new report.
    pub fn reported(&self, report: &Report) {
        // Each unknown transition of a newer agent would become a label value.
        let transition = match &report.transition {
            Transition::Other(_) => "other".to_owned(),
            known => known.to_string(),
        };
        self.reports.get_or_create(&Reported { transition }).inc();
        if let Some(took) = delivery(report) {
            self.deliveries.observe(took);
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register(
            "request_duration_seconds",
            "Time from the head of a request to the head of its response, including the wait of long polls",
            self.durations.clone(),
        );
        registry.register("long_polls_woken", "Long polls woken by a change", self.wakes.clone());
        registry.register("reports", "Reports of agents, each once", self.reports.clone());
        registry.register(
            "delivery_duration_seconds",
            "Time between releasing a deployment object to an agent and the agent's report that it is completely ready",
            self.deliveries.clone(),
        );
        registry.register(
            "request_bodies_refused",
            "Request bodies that were not accepted, by reason",
            self.refused_bodies.clone(),
        );
        registry.register(
            "positions_refused",
            "Requests refused because the broker did not issue the position that they claim to have seen",
            self.refused_positions.clone(),
        );
    }
}

/// Returns the seconds that a delivery took, by the broker's clock, if this report ends one. Later reports only say that
/// the object is healthy again.
fn delivery(report: &Report) -> Option<f64> {
    let hops = &report.hops;
    let first =
        report.transition == Transition::Healthy && hops.healthy.is_some_and(|healthy| report.at <= healthy);
    let due = hops.published.max(hops.targeted).max(hops.released).filter(|_| first)?;
    Some(hops.reported?.duration_since(due).as_secs_f64().max(0.0))
}

/// Callers may send any word as a method: only known ones become a label.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn callers_cannot_create_series() {
        let metrics = Metrics::default();
        for count in 0..1000 {
            let method = Method::from_bytes(format!("M{count}").as_bytes()).unwrap();
            metrics.answered("", &method, StatusCode::NOT_FOUND, Duration::ZERO);
        }
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("requests_total{route=\"unknown\",method=\"other\",status=\"4xx\"} 1000"),
            "{text}"
        );
        let series = text.lines().filter(|line| line.contains("route="));
        assert!(series.count() < 20, "{text}");
    }

    #[test]
    fn a_delivery_takes_from_when_it_was_due_to_the_first_report_that_it_is_healthy() {
        let second = |number| Timestamp::from_second(number).unwrap();
        let mut report: Report = serde_json::from_value(serde_json::json!({
            "id": uuid::Uuid::nil(), "stack_id": uuid::Uuid::nil(), "sequence_id": 1, "transition": "healthy",
            "at": second(130),
        }))
        .unwrap();
        assert_eq!(delivery(&report), None, "its publication time is unknown");
        report.hops.published = Some(second(10));
        report.hops.targeted = Some(second(100));
        report.hops.healthy = Some(second(130));
        report.hops.reported = Some(second(132));
        assert_eq!(delivery(&report), Some(32.0), "the time before the agent was targeted does not count");
        report.transition = Transition::Applied;
        assert_eq!(delivery(&report), None);
        report.transition = Transition::Healthy;
        report.at = second(500);
        assert_eq!(delivery(&report), None, "healthy again");
    }
}

//! Figures about the fleet: the same on every replica, because they come from the database.
//!
//! Counted on request, by one statement, and cached: at most a twentieth of the time is spent on counting, however large
//! the fleet is. The age of the figures is a metric, too.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use brokkr_api::agents::AgentStatus;
use brokkr_api::report::Transition;
use brokkr_api::why::Presence;
use brokkr_metrics::seconds;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use sqlx::PgPool;
use strum::IntoEnumIterator as _;
use tokio::sync::Mutex;

use crate::store::fleet::{FleetFigures, fleet_count};

/// The minimum time that figures are cached.
const CACHED_FOR: Duration = Duration::from_secs(5);
/// Figures are also cached for at least this many times as long as counting took.
const SHARE: u32 = 20;
/// Collectors usually wait for ten seconds, so counting stops earlier.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    status: String,
    presence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: String,
}

/// The cached figures.
#[derive(Debug, Default)]
pub struct FleetCount {
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    counted: Option<(FleetFigures, Instant)>,
    next: Option<Instant>,
}

impl FleetCount {
    /// Returns the figures and when they were counted. None if counting never succeeded.
    async fn figures(&self, pool: &PgPool) -> Option<(FleetFigures, Instant)> {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        if last.next.is_none_or(|next| next <= now) {
            // The store counts a failed statement. The figures stay as they are, also after a timeout.
            if let Ok(Ok(figures)) = tokio::time::timeout(COUNT_TIMEOUT, fleet_count(pool)).await {
                last.counted = Some((figures, Instant::now()));
            }
            last.next = Some(now + CACHED_FOR.max(now.elapsed() * SHARE));
        }
        last.counted.clone()
    }

    /// Registers the figures; counts only if the database is `reachable`.
    pub async fn register(&self, registry: &mut Registry, pool: &PgPool, reachable: bool) {
        let counted =
            if reachable { self.figures(pool).await } else { self.last.lock().await.counted.clone() };
        if let Some((figures, at)) = counted {
            show(registry, &figures, at.elapsed());
        }
    }
}

fn show(registry: &mut Registry, figures: &FleetFigures, age: Duration) {
    let agents = Family::<Kind, Gauge>::default();
    for status in AgentStatus::iter() {
        for presence in Presence::iter() {
            let kind = Kind { status: status.to_string(), presence: presence.to_string() };
            let count = whole(figures.of("agents", &kind.status, &kind.presence));
            agents.get_or_create(&kind).set(count);
        }
    }
    registry.register("agents", "Agents by status and presence", agents);
    let states = Transition::KNOWN.into_iter().filter(Transition::is_state);
    let placements = by_state(figures, "placements", states.map(|state| state.to_string()));
    registry.register("placements", "Stacks on agents, by last report", placements);
    let states = ["running", "soaking", "gated", "paused", "stopped"];
    let rollouts = by_state(figures, "rollouts", states.map(str::to_owned));
    registry.register("rollouts", "Rollouts that have not ended, by state", rollouts);
    // An age grows after counting.
    let aged = |oldest: f64| if oldest > 0.0 { oldest + age.as_secs_f64() } else { 0.0 };
    let since = Family::<State, Gauge<f64, AtomicU64>>::default();
    for state in states.map(str::to_owned) {
        let seconds = aged(figures.of("rollouts", &state, "oldest"));
        since.get_or_create(&State { state }).set(seconds);
    }
    let help = "Time since the oldest rollout in each state entered it";
    registry.register("rollout_state_seconds", help, since);
    let agents = by_state(figures, "rollout_agents", ["bad", "owed", "in_flight"].map(str::to_owned));
    registry.register(
        "rollout_agents",
        "Agents of rollouts that have not ended, by what they count as",
        agents,
    );
    let webhooks = by_state(figures, "webhooks", ["working", "failing", "off"].map(str::to_owned));
    registry.register("webhooks", "Webhooks by state", webhooks);
    let mut count = |name: &str, help: &str, what: &str| {
        registry.register(name, help, ConstGauge::new(whole(figures.of(what, "count", ""))));
    };
    count(
        "placements_behind",
        "Stacks on agents with a last report about an older deployment object",
        "behind",
    );
    count("approvals_waiting", "Prunes that need an approval", "approvals");
    count("webhook_messages_waiting", "Pending webhook messages", "messages");
    let mut oldest = |name: &str, help: &str, what: &str| {
        seconds(registry, name, help, aged(figures.of(what, "oldest", "")));
    };
    oldest(
        "placements_behind_seconds",
        "Age of the oldest deployment object that an agent has not reported on yet",
        "behind",
    );
    oldest(
        "rollout_base_age_seconds",
        "Age of the oldest version that was superseded or is still rolled out, of stacks with a rollout",
        "base",
    );
    oldest("rollout_look_age_seconds", "Time since the agents of a rollout were last looked at", "look");
    oldest("approvals_waiting_seconds", "Age of the oldest prune that needs an approval", "approvals");
    oldest("webhook_messages_waiting_seconds", "Age of the oldest pending webhook message", "messages");
    seconds(registry, "fleet_age_seconds", "Age of the figures about the fleet", age.as_secs_f64());
}

fn by_state(
    figures: &FleetFigures,
    what: &str,
    states: impl IntoIterator<Item = String>,
) -> Family<State, Gauge> {
    let family = Family::<State, Gauge>::default();
    for state in states {
        let count = whole(figures.of(what, &state, ""));
        family.get_or_create(&State { state }).set(count);
    }
    family
}

/// Returns a count as an integer: the statement returns all figures as floats in one column.
#[expect(clippy::cast_possible_truncation, reason = "counts are far below 2^53")]
fn whole(count: f64) -> i64 {
    count as i64
}

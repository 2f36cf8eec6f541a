//! The built-in policy, and how the policies of several scopes add up.

use std::time::Duration;

use brokkr_api::rollouts::{RolloutPolicy, Share, Wave};

use crate::domain::release::Clause;

/// At most this many agents have a version without a verdict, whatever the policy says.
pub const MOST_IN_FLIGHT: u64 = 10_000;
const SOAK: Duration = Duration::from_secs(600);
const SHORT_SOAK: Duration = Duration::from_secs(120);
/// Below this number of agents, waves soak for a shorter time, and a deletion has no waves unless it names them.
pub const SMALL_FLEET: u64 = 100;

/// The policy of one rollout: it does not change while the rollout lasts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    pub waves: Vec<Wave>,
    pub max_in_flight: Share,
    pub max_bad_percent: u8,
    pub min_healthy_percent: u8,
    /// How long a wave has to stay healthy; absent: by the size of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Duration>,
    /// Whether no more agents may be in flight than are healthy with the version.
    pub grows: bool,
}

impl Policy {
    /// Returns how long a wave has to stay healthy in a fleet of this size.
    #[must_use]
    pub fn soak(&self, members: u64) -> Duration {
        self.soak.unwrap_or(if members < SMALL_FLEET { SHORT_SOAK } else { SOAK })
    }

    /// Returns how many agents of a fleet of this size may have the version without a verdict, however many are healthy.
    #[must_use]
    pub fn in_flight_limit(&self, members: u64) -> u64 {
        self.max_in_flight.of(members).clamp(1, MOST_IN_FLIGHT)
    }

    /// Begins with the agents that a rollout with these clauses has reached by their labels. Where the order of the agents decided,
    /// that is the same anyway.
    #[must_use]
    pub fn beginning_with(mut self, clauses: &[Clause]) -> Self {
        let mut waves: Vec<Wave> = Vec::new();
        for selector in clauses.iter().filter_map(|clause| clause.selector.clone()) {
            let wave = Wave { selector: Some(selector), size: Share::ALL, gate: None };
            // Agents with other lanes have clauses of their own.
            if !waves.contains(&wave) {
                waves.push(wave);
            }
        }
        self.waves.splice(0..0, waves);
        self
    }

    /// Returns the policy as it is shown, in a fleet of this size.
    #[must_use]
    pub fn shown(&self, members: u64) -> RolloutPolicy {
        RolloutPolicy {
            staged: Some(true),
            waves: Some(self.waves.clone()),
            max_in_flight: Some(self.max_in_flight),
            max_bad_percent: Some(self.max_bad_percent),
            min_healthy_percent: Some(self.min_healthy_percent),
            soak_seconds: u32::try_from(self.soak(members).as_secs()).ok(),
        }
    }
}

/// What kind of change is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first version that its agents get: none of them can lose anything.
    First,
    Version,
    /// The stack is deleted.
    Deletion,
    /// A content that was in use before: it does not soak, and does not wait for a first agent.
    Rollback,
}

/// Returns the policy for a rollout; none if every agent gets the version at once. Of the given policies, the narrowest scope
/// comes first.
#[must_use]
pub fn resolve(policies: &[RolloutPolicy], kind: Kind) -> Option<Policy> {
    fn first<T>(policies: &[RolloutPolicy], field: impl Fn(&RolloutPolicy) -> Option<T>) -> Option<T> {
        policies.iter().find_map(field)
    }
    // A policy that names waves wants them, even if a wider one has none.
    if first(policies, |policy| policy.staged.or(policy.waves.as_ref().map(|_| true))) == Some(false) {
        return None;
    }
    let soak = first(policies, |policy| policy.soak_seconds);
    let soak = soak.map(|seconds| Duration::from_secs(seconds.into()));
    let waves = match kind {
        Kind::Rollback => Vec::new(),
        Kind::First | Kind::Version | Kind::Deletion => {
            first(policies, |policy| policy.waves.clone()).unwrap_or_else(built_in_waves)
        }
    };
    let max_bad_percent = first(policies, |policy| policy.max_bad_percent).unwrap_or(2).min(100);
    let min_healthy_percent = first(policies, |policy| policy.min_healthy_percent).unwrap_or(95);
    Some(Policy {
        waves: ending_with_all(waves),
        max_in_flight: first(policies, |policy| policy.max_in_flight).unwrap_or(Share::Percent(10)),
        max_bad_percent,
        // Otherwise a rollout with as many bad agents as are allowed would neither stop nor go on.
        min_healthy_percent: min_healthy_percent.min(100 - max_bad_percent),
        soak: if matches!(kind, Kind::Version | Kind::Deletion) { soak } else { Some(Duration::ZERO) },
        grows: kind != Kind::Rollback,
    })
}

fn built_in_waves() -> Vec<Wave> {
    let sizes = [Share::Count(1), Share::Percent(1), Share::Percent(10), Share::Percent(50), Share::ALL];
    sizes.into_iter().map(Wave::of).collect()
}

/// The last wave is always every agent: a policy cannot leave agents out by mistake.
fn ending_with_all(mut waves: Vec<Wave>) -> Vec<Wave> {
    let is_all = |wave: &Wave| wave.selector.is_none() && wave.size == Share::ALL;
    if !waves.last().is_some_and(is_all) {
        waves.push(Wave::of(Share::ALL));
    }
    waves
}

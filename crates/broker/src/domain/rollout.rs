//! How a rollout goes on: a pure function of its policy, of where it stands, and of what the agents report.
//!
//! | module     | contents                                                                 |
//! |------------|--------------------------------------------------------------------------|
//! | `policy`   | the built-in policy, and how the policies of several scopes add up       |
//! | `verdict`  | what an agent counts as, by its reports and its presence                 |
//! | `survey`   | counts of the agents, and which of them come next                        |
//! | `command`  | what a person can do                                                     |
//! | `widening` | when agents that a stack gains get its version in waves                  |

pub mod command;
#[cfg(test)]
mod model;
pub mod policy;
pub mod survey;
#[cfg(test)]
mod tests;
pub mod verdict;
#[cfg(test)]
mod waiting;
pub mod widening;

use std::collections::BTreeSet;
use std::time::Duration;

use brokkr_api::rollouts::{Gate, Pending, RolloutFigures, RolloutState, StopReason};
use brokkr_api::{Selector, rollouts::Wave};
use jiff::Timestamp;

use super::release::Clause;
use super::windows::Lanes;
use policy::Policy;
use survey::{Survey, mark};

/// This many agents that were bad before are tolerated without a healthy one.
const EXCUSED: u64 = 10;

/// The longest time between two looks that counts as watched.
const WATCHED: Duration = Duration::from_secs(10);
/// After this time without a look, agents get the whole time for a verdict again.
const UNWATCHED: Duration = Duration::from_secs(60);

/// Returns how long the agents were watched since the last look, and since when without a pause. H9: in an outage, or when the
/// clock of the database is set, no time counts as watched that was not.
#[must_use]
pub fn watched(
    looked_at: Option<Timestamp>,
    watched_since: Timestamp,
    now: Timestamp,
) -> (Duration, Timestamp) {
    let elapsed = looked_at.map(|at| now.duration_since(at));
    let elapsed = elapsed.map_or(Duration::ZERO, |elapsed| Duration::try_from(elapsed).unwrap_or_default());
    (elapsed.min(WATCHED), if elapsed > UNWATCHED { now } else { watched_since })
}

/// A rollout, as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    pub policy: Policy,
    pub state: RolloutState,
    pub stop_reason: Option<StopReason>,
    /// The current wave, counted from 0.
    pub wave: usize,
    /// To which agents the version is released.
    pub clauses: Vec<Clause>,
    /// How long the agents have been healthy since the last release, while they were watched.
    pub soaked: Duration,
    /// Bad agents that a person has accepted by resuming the rollout.
    pub accepted_bad: u64,
    /// Agents that were bad before, which a person has accepted in the same way.
    pub accepted_excused: u64,
    /// How far the gate of the current wave is.
    pub gate: GateProgress,
}

/// How far the gate of a wave is.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateProgress {
    /// The tokens that have approved.
    #[serde(default)]
    pub approved_by: BTreeSet<String>,
    /// How long it has waited, while the agents were watched.
    #[serde(default)]
    pub waited: Duration,
    /// A person has skipped it.
    #[serde(default)]
    pub is_skipped: bool,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Stop(StopReason),
    /// Release the version to this many candidates of the wave.
    Release(u64),
    Wait(Pending),
    /// Begin the next wave.
    BeginWave,
    Complete,
}

impl Rollout {
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: RolloutState::Running,
            stop_reason: None,
            wave: 0,
            clauses: Vec::new(),
            soaked: Duration::ZERO,
            accepted_bad: 0,
            accepted_excused: 0,
            gate: GateProgress::default(),
        }
    }

    /// Returns the labels that an agent of the current wave needs.
    #[must_use]
    pub fn selector(&self) -> Option<&Selector> {
        self.policy.waves.get(self.wave).and_then(|wave: &Wave| wave.selector.as_ref())
    }

    /// Goes on, if it is running. `watched` is the time since the agents were last looked at. Returns the decision.
    pub fn step(&mut self, survey: &mut Survey, watched: Duration) -> Option<Decision> {
        match self.state {
            RolloutState::Running => {}
            RolloutState::Soaking => self.soaked += watched,
            RolloutState::Gated => self.gate.waited += watched,
            _ => return None,
        }
        let mut decision = self.decide(survey);
        self.state = RolloutState::Running;
        // The next wave begins at once, if it is known who belongs to it. The time is kept, so that a wave without further agents
        // does not soak again.
        while decision == Decision::BeginWave {
            let before = self.selector().cloned();
            (self.wave, self.gate) = (self.wave + 1, GateProgress::default());
            // Who has to approve it is known.
            if self.selector() != before.as_ref() && self.open_gate().is_none() {
                break;
            }
            decision = self.decide(survey);
        }
        match &decision {
            Decision::Stop(reason) => {
                (self.state, self.stop_reason) = (RolloutState::Stopped, Some(reason.clone()));
            }
            Decision::Release(count) => {
                if let Some(upto) = mark(&mut survey.candidates, *count) {
                    self.raise(upto, &survey.lanes);
                }
                self.soaked = Duration::ZERO;
            }
            Decision::Wait(Pending::Soak { .. }) => self.state = RolloutState::Soaking,
            Decision::Wait(Pending::Gate { .. }) => self.state = RolloutState::Gated,
            Decision::Wait(_) => self.soaked = Duration::ZERO,
            Decision::BeginWave => {}
            Decision::Complete => self.state = RolloutState::Completed,
        }
        Some(decision)
    }

    /// Decides what happens next. The rules are tried in this order.
    fn decide(&self, Survey { figures, wave, opens_at, .. }: &Survey) -> Decision {
        // Without agents there is nothing to learn. If there were some, they may come back. A gate has to be answered in any case:
        // agents that join later get what is complete.
        let has_gate_ahead =
            self.open_gate().is_some() || self.later_waves().iter().any(|wave| wave.gate.is_some());
        if figures.members == 0 && self.clauses.is_empty() && !has_gate_ahead {
            return Decision::Complete;
        }
        let allowed = self.allowed_bad(figures.released);
        let is_everywhere = figures.released >= figures.members;
        // If every agent has the version, there is nothing left to withhold: those that failed keep trying.
        if figures.bad > allowed && (!is_everywhere || figures.owed > 0) {
            return Decision::Stop(StopReason::TooManyBad { bad: figures.bad, allowed });
        }
        if let Some((gate, given)) = self.open_gate() {
            let is_late = |seconds: u32| self.gate.waited >= Duration::from_secs(seconds.into());
            if gate.timeout_seconds.is_some_and(is_late) {
                return Decision::Stop(StopReason::GateTimedOut { wave: self.wave_number() });
            }
            return Decision::Wait(Pending::Gate { given, needed: gate.approvals });
        }
        // Waves that add no agent fall together.
        let is_last = self.later_waves().is_empty() || is_everywhere && !has_gate_ahead;
        let size = self.policy.waves.get(self.wave).map_or(wave.members, |here| here.size.of(wave.members));
        // Another agent proves the version in the place of a bad one that a user has accepted.
        let replaced = wave.bad.min(self.accepted_bad);
        let short = (size + replaced).saturating_sub(wave.released);
        let missing = short.min(wave.candidates);
        // It is known soon whether they are back or gone: until then, a wave without them would prove too little.
        if missing == 0 && short > 0 && wave.late > 0 {
            return Decision::Wait(Pending::Late { agents: wave.late });
        }
        // The other agents of the wave have the version: those that may not begin yet keep no one from it. A wave that selects
        // agents goes on without those of them that may not begin, unless it has proven nothing.
        if missing == 0 && short > 0 && wave.shut > 0 && (self.selector().is_none() || wave.released == 0) {
            return Decision::Wait(Pending::Window { agents: wave.shut, opens_at: *opens_at });
        }
        if missing > 0 {
            let limit = self.in_flight_limit(figures);
            // Agents that were bad before prove nothing, and others are drawn for them: not without end.
            let allowed = figures.healthy + limit + EXCUSED + self.accepted_excused;
            if figures.excused > allowed {
                return Decision::Stop(StopReason::TooManyExcused { excused: figures.excused });
            }
            let room = limit.saturating_sub(figures.in_flight);
            return match missing.min(room) {
                0 => Decision::Wait(Pending::InFlight { limit }),
                count => Decision::Release(count),
            };
        }
        let accepted = figures.bad.min(self.accepted_bad);
        let judged = figures.released - figures.owed - figures.excused - figures.waiting - accepted;
        // If no agent with the labels of the wave can prove the version, the others wait only for the soak time. If there are no
        // others, there is nothing to wait for.
        let is_decided = figures.released > 0 && is_everywhere && figures.owed == 0 && figures.waiting == 0;
        let is_unprovable = judged == 0 && (is_decided || !is_last && self.selector().is_some());
        let needed = (judged * u64::from(self.policy.min_healthy_percent)).div_ceil(100).max(1);
        if figures.healthy < needed && !is_unprovable {
            return Decision::Wait(Pending::Healthy { needed });
        }
        if is_last {
            return Decision::Complete;
        }
        match self.policy.soak(figures.members).saturating_sub(self.soaked) {
            Duration::ZERO => Decision::BeginWave,
            left => Decision::Wait(Pending::Soak { left_seconds: left.as_secs().max(1) }),
        }
    }

    /// Raises the mark of the current wave, for agents that may begin at any time, and in the lanes of those that may now. A mark
    /// never falls.
    fn raise(&mut self, upto: u64, open: &BTreeSet<Lanes>) {
        let selector = self.selector().cloned();
        let restricted = open.iter().copied().filter(|lanes| !lanes.is_none());
        for lanes in [Lanes::default()].into_iter().chain(restricted) {
            match self.clauses.iter_mut().find(|clause| clause.selector == selector && clause.lanes == lanes)
            {
                Some(clause) => clause.upto = clause.upto.max(upto),
                None => self.clauses.push(Clause { selector: selector.clone(), lanes, upto }),
            }
        }
    }

    /// Returns the number of the current wave as it is shown, counted from 1.
    #[must_use]
    pub fn wave_number(&self) -> u32 {
        u32::try_from(self.wave + 1).unwrap_or(u32::MAX)
    }

    fn later_waves(&self) -> &[Wave] {
        self.policy.waves.get(self.wave + 1..).unwrap_or_default()
    }

    /// Returns the gate of the current wave, if it lacks approvals, and how many it has.
    #[must_use]
    pub fn open_gate(&self) -> Option<(&Gate, u32)> {
        let gate = self.policy.waves.get(self.wave)?.gate.as_ref().filter(|_| !self.gate.is_skipped)?;
        let given = u32::try_from(self.gate.approved_by.len()).unwrap_or(u32::MAX);
        (given < gate.approvals).then_some((gate, given))
    }

    /// Returns how many agents may be bad before the rollout stops.
    #[must_use]
    pub fn allowed_bad(&self, released: u64) -> u64 {
        released * u64::from(self.policy.max_bad_percent) / 100 + self.accepted_bad
    }

    /// Returns how many agents may have the version without a verdict.
    #[must_use]
    pub fn in_flight_limit(&self, figures: &RolloutFigures) -> u64 {
        let limit = self.policy.in_flight_limit(figures.members);
        // Each healthy agent lets one more begin, so the number doubles.
        let limit = if self.policy.grows { limit.min(figures.healthy) } else { limit };
        limit.max(1)
    }
}

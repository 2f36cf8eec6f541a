//! How far a rollout is, in words and bars: of a version, or of an upgrade of agents.

use std::time::Duration;

use brokkr_api::rollouts::{Pending, Rollout, RolloutFigures, RolloutPolicy, RolloutState, StopReason, Wave};
use brokkr_api::upgrades::AgentUpgrade;

use super::text::{clean, count, thousands};

/// `stopped: 1 agent is bad, 0 allowed`
pub fn state(state: RolloutState, stop_reason: Option<&StopReason>) -> String {
    stop_reason.map_or_else(|| state.to_string(), |reason| format!("{state}: {}", clean(reason)))
}

/// What the rollouts of versions and of agents have in common.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    state: RolloutState,
    wave: u32,
    policy: &'a RolloutPolicy,
    figures: &'a RolloutFigures,
    allowed_bad: u64,
    in_flight_limit: u64,
    pending: Option<Pending>,
}

impl<'a> From<&'a Rollout> for Course<'a> {
    fn from(rollout: &'a Rollout) -> Self {
        let Rollout { state, wave, policy, figures, allowed_bad, in_flight_limit, pending, .. } = rollout;
        let (allowed_bad, in_flight_limit) = (*allowed_bad, *in_flight_limit);
        Self { state: *state, wave: *wave, policy, figures, allowed_bad, in_flight_limit, pending: *pending }
    }
}

impl<'a> From<&'a AgentUpgrade> for Course<'a> {
    fn from(upgrade: &'a AgentUpgrade) -> Self {
        let AgentUpgrade { state, wave, policy, figures, allowed_bad, in_flight_limit, pending, .. } =
            upgrade;
        let (allowed_bad, in_flight_limit) = (*allowed_bad, *in_flight_limit);
        Self { state: *state, wave: *wave, policy, figures, allowed_bad, in_flight_limit, pending: *pending }
    }
}

impl Course<'_> {
    /// Returns the waves as bars, one line each.
    pub fn drawn(&self) -> Vec<String> {
        let waves = self.bars();
        let width = waves.iter().map(|(size, _)| size.len()).max().unwrap_or_default();
        let line = |(at, (size, bar)): (usize, &(String, String))| {
            let is_current = !self.state.has_ended() && at + 1 == self.wave as usize;
            let mark = if is_current { '>' } else { ' ' };
            format!("{mark} wave {:<2} {size:>width$}  {bar}", at + 1).trim_end().to_owned()
        };
        waves.iter().enumerate().map(line).collect()
    }

    /// Returns the size of each wave, and a bar that shows how far it is.
    fn bars(&self) -> Vec<(String, String)> {
        const WIDTH: u64 = 20;
        let figures = self.figures;
        let mut before = 0;
        let bar = |filled: u64| {
            let filled = filled.min(WIDTH);
            let part = |sign: &str, count: u64| sign.repeat(usize::try_from(count).unwrap_or_default());
            format!("{}{}", part("█", filled), part("░", WIDTH - filled))
        };
        let waves = self.policy.waves.iter().flatten().enumerate();
        let bars = waves.map(|(at, wave)| {
            let is_past = self.state == RolloutState::Completed || at + 1 < self.wave as usize;
            // How many agents have the labels of a wave is not known here.
            if wave.selector.is_some() {
                return (size(wave), bar(if is_past { WIDTH } else { 0 }));
            }
            let end = wave.size.of(figures.members).max(before);
            let (begun, agents) = (figures.released.saturating_sub(before), end - before);
            before = end;
            let filled = if is_past { WIDTH } else { begun.min(agents) * WIDTH / agents.max(1) };
            (size(wave), if agents == 0 { String::new() } else { bar(filled) })
        });
        bars.collect()
    }

    /// `2: 0 that are allowed, and 2 in flight`
    pub fn bound(&self) -> String {
        let (allowed, limit) = (self.allowed_bad, self.in_flight_limit);
        let total = thousands(allowed.saturating_add(limit));
        format!("{total}: {} allowed, and {} in flight", thousands(allowed), thousands(limit))
    }

    pub fn waves(&self) -> String {
        self.policy.waves.iter().flatten().map(size).collect::<Vec<_>>().join(", ")
    }

    pub fn of_these(&self) -> String {
        let figures = self.figures;
        let counts = [
            (figures.healthy, "healthy"),
            (figures.in_flight, "in flight"),
            (figures.bad, "bad"),
            (figures.excused, "bad before, too"),
            (figures.waiting, "waiting for approval"),
            (figures.owed, "not able to begin"),
        ];
        let shown = counts.iter().filter(|(count, _)| *count > 0);
        let shown: Vec<String> = shown.map(|(count, what)| format!("{} {what}", thousands(*count))).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
    }

    pub fn next(&self) -> Option<String> {
        use RolloutState::{Gated, Running, Soaking};
        if !matches!(self.state, Running | Soaking | Gated) {
            return None;
        }
        let waves = self.policy.waves.as_ref();
        let following = waves.and_then(|waves| waves.get(self.wave as usize));
        let wave = following.map_or("completion".to_owned(), |wave| format!("{} of the agents", wave.size));
        Some(match self.pending? {
            Pending::InFlight { limit } => {
                format!("more agents, when fewer than {} are in flight", thousands(limit))
            }
            Pending::Healthy { needed } => {
                let agents = if needed == 1 { "agent is" } else { "agents are" };
                format!("{wave}, when {} {agents} healthy", thousands(needed))
            }
            Pending::Late { agents } => {
                let agents = count(usize::try_from(agents).unwrap_or(usize::MAX), "agent");
                format!("more agents, when it is known whether {agents} without contact are offline")
            }
            Pending::Soak { left_seconds } => {
                let left = humantime::format_duration(Duration::from_secs(left_seconds));
                format!("{wave}, when the agents stay healthy for {left} more")
            }
            Pending::Window { agents, opens_at } => {
                let agents = count(usize::try_from(agents).unwrap_or(usize::MAX), "agent");
                let at = opens_at.map_or_else(String::new, |at| format!(", at {at:.0}"));
                format!("{agents}, when the maintenance window opens or the freeze ends{at}")
            }
            Pending::Gate { given, needed } => {
                let here = waves.and_then(|waves| waves.get((self.wave as usize).checked_sub(1)?));
                let wave =
                    here.map_or("the next wave".to_owned(), |wave| format!("{} of the agents", wave.size));
                format!("{wave}, when approved: {given} of {needed} approvals so far")
            }
            Pending::Other => return None,
        })
    }
}

/// `10%`, `10% of ring=0`, or `10% after approval`
pub fn size(wave: &Wave) -> String {
    let of = wave.selector.as_ref().map_or_else(String::new, |selector| format!(" of {selector}"));
    let gate = if wave.gate.is_some() { " after approval" } else { "" };
    format!("{}{of}{gate}", wave.size)
}

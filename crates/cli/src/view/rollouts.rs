//! Rollouts: how far they are, and what they wait for.

use std::time::Duration;

use brokkr_api::rollouts::{Pending, Rollout, RolloutState, Wave};

use super::table::Table;
use super::text::{age, clean, count, fields, thousands, when};
use super::{Listed, RenderOptions, Show};

impl Listed for Rollout {
    const NONE: &'static str = "no rollout is under way";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("STACK", |rollout| &rollout.stack_name)
            .plain("VERSION", versions)
            .plain("STATE", |rollout| rollout.state)
            .plain("WAVE", |rollout| format!("{} of {}", rollout.wave, rollout.waves))
            .plain("RELEASED", |rollout| {
                format!("{}/{}", thousands(rollout.figures.released), thousands(rollout.figures.members))
            })
            .plain("HEALTHY", |rollout| thousands(rollout.figures.healthy))
            .plain("BAD", |rollout| thousands(rollout.figures.bad))
            .plain("AGE", |rollout| age(rollout.created_at, now))
            .wide("BY", |rollout| &rollout.created_by)
    }

    fn name(&self) -> String {
        format!("rollout/{}", self.sequence_id)
    }
}

impl Show for Rollout {
    fn text(&self, options: &RenderOptions) -> String {
        let figures = &self.figures;
        let mut pairs = vec![
            ("stack", self.stack_name.clone()),
            ("version", versions(self)),
            ("state", state(self)),
            ("wave", format!("{} of {}: {}", self.wave, self.waves, waves(self))),
            (
                "released",
                format!("to {} of {} agents", thousands(figures.released), thousands(figures.members)),
            ),
            ("of these", of_these(self)),
            ("bad at most", bound(self)),
        ];
        pairs.extend(next(self).map(|next| ("next", next)));
        pairs.push(("begun", format!("{} by {}", when(self.created_at, options.now), self.created_by)));
        pairs.extend(self.ended_at.map(|at| ("ended", when(at, options.now))));
        fields(pairs)
    }

    fn names(&self) -> Vec<String> {
        vec![Listed::name(self)]
    }
}

/// `41 → 42`
fn versions(rollout: &Rollout) -> String {
    let version = rollout.sequence_id;
    if let Some(widened) = rollout.widens {
        return format!("{widened} to more agents");
    }
    match rollout.base_sequence_id {
        Some(base) if rollout.is_deletion => format!("{base} → deletion {version}"),
        Some(base) => format!("{base} → {version}"),
        None => version.to_string(),
    }
}

/// `stopped: 1 agent is bad, 0 allowed`
pub fn state(rollout: &Rollout) -> String {
    match &rollout.stop_reason {
        Some(reason) => format!("{}: {}", rollout.state, clean(reason)),
        None => rollout.state.to_string(),
    }
}

/// What happens next with a version that was just submitted.
pub fn announcement(rollout: &Rollout) -> String {
    let policy = &rollout.policy;
    let bad = policy.max_bad_percent.map(|percent| format!("{percent}%")).unwrap_or_default();
    let in_flight = policy.max_in_flight.map(|share| share.to_string()).unwrap_or_default();
    format!(
        "released in waves: {}; stops if more than {bad} of its agents are bad, with up to {in_flight} in flight\n\
         brokkr rollout watch {}",
        waves(rollout),
        clean(&rollout.stack_name)
    )
}

/// `wave 2 of 5, next when 13 agents are healthy`; none if the rollout has ended.
pub fn progress(rollout: &Rollout) -> Option<String> {
    let wave = format!("wave {} of {}", rollout.wave, rollout.waves);
    match rollout.state {
        state if state.has_ended() => None,
        RolloutState::Running | RolloutState::Soaking | RolloutState::Gated => {
            Some(next(rollout).map_or(wave.clone(), |next| format!("{wave}, next: {next}")))
        }
        state => Some(format!("{wave}, {state}")),
    }
}

/// `the version is on 1 of 3 agents (1 bad); the others keep 41`
pub fn reached(rollout: &Rollout) -> String {
    let figures = &rollout.figures;
    let (released, members) = (thousands(figures.released), thousands(figures.members));
    let mut text = format!("it was released to {released} of {members} agents ({})", of_these(rollout));
    if let Some(base) = rollout.base_sequence_id.filter(|_| figures.released < figures.members) {
        text.push_str(&format!("; the others keep {base}"));
    }
    text
}

/// The waves as bars, and what happens next.
pub fn picture(rollout: &Rollout, options: &RenderOptions) -> String {
    let figures = &rollout.figures;
    let mut lines = vec![
        format!(
            "{} {}: {}, released to {} of {} agents",
            clean(&rollout.stack_name),
            versions(rollout),
            state(rollout),
            thousands(figures.released),
            thousands(figures.members)
        ),
        String::new(),
    ];
    let waves: Vec<(String, String)> = bars(rollout);
    let width = waves.iter().map(|(size, _)| size.len()).max().unwrap_or_default();
    lines.extend(waves.iter().enumerate().map(|(at, (size, bar))| {
        let is_current = !rollout.state.has_ended() && at + 1 == rollout.wave as usize;
        let mark = if is_current { '>' } else { ' ' };
        format!("{mark} wave {:<2} {size:>width$}  {bar}", at + 1).trim_end().to_owned()
    }));
    lines.push(String::new());
    let mut pairs = vec![("agents", of_these(rollout)), ("bad at most", bound(rollout))];
    pairs.extend(next(rollout).map(|next| ("next", next)));
    pairs.push(("begun", when(rollout.created_at, options.now)));
    lines.push(fields(pairs));
    lines.join("\n")
}

/// Returns the size of each wave, and a bar that shows how far it is.
fn bars(rollout: &Rollout) -> Vec<(String, String)> {
    const WIDTH: u64 = 20;
    let figures = &rollout.figures;
    let mut before = 0;
    let bar = |filled: u64| {
        let filled = filled.min(WIDTH);
        let part = |sign: &str, count: u64| sign.repeat(usize::try_from(count).unwrap_or_default());
        format!("{}{}", part("█", filled), part("░", WIDTH - filled))
    };
    let waves = rollout.policy.waves.iter().flatten().enumerate();
    let bars = waves.map(|(at, wave)| {
        let is_past = rollout.state == RolloutState::Completed || at + 1 < rollout.wave as usize;
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
fn bound(rollout: &Rollout) -> String {
    let (allowed, limit) = (rollout.allowed_bad, rollout.in_flight_limit);
    let total = thousands(allowed.saturating_add(limit));
    format!("{total}: {} allowed, and {} in flight", thousands(allowed), thousands(limit))
}

fn waves(rollout: &Rollout) -> String {
    rollout.policy.waves.iter().flatten().map(size).collect::<Vec<_>>().join(", ")
}

/// `10%`, `10% of ring=0`, or `10% after approval`
pub(super) fn size(wave: &Wave) -> String {
    let of = wave.selector.as_ref().map_or_else(String::new, |selector| format!(" of {selector}"));
    let gate = if wave.gate.is_some() { " after approval" } else { "" };
    format!("{}{of}{gate}", wave.size)
}

fn of_these(rollout: &Rollout) -> String {
    let figures = &rollout.figures;
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

fn next(rollout: &Rollout) -> Option<String> {
    use RolloutState::{Gated, Running, Soaking};
    if !matches!(rollout.state, Running | Soaking | Gated) {
        return None;
    }
    let waves = rollout.policy.waves.as_ref();
    let following = waves.and_then(|waves| waves.get(rollout.wave as usize));
    let wave = following.map_or("completion".to_owned(), |wave| format!("{} of the agents", wave.size));
    Some(match rollout.pending? {
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
            let here = waves.and_then(|waves| waves.get((rollout.wave as usize).checked_sub(1)?));
            let wave = here.map_or("the next wave".to_owned(), |wave| format!("{} of the agents", wave.size));
            format!("{wave}, when approved: {given} of {needed} approvals so far")
        }
        Pending::Other => return None,
    })
}

#[cfg(test)]
pub mod tests {
    use brokkr_api::rollouts::{RolloutFigures, RolloutPolicy, Share, StopReason};
    use brokkr_api::{SequenceId, StackId};

    use super::super::samples::{ago, rendered};
    use super::super::whole;
    use super::*;

    pub fn rollout() -> Rollout {
        let sizes = ["1", "1%", "10%", "50%", "100%"];
        let wave = |size: &str| Wave::of(size.parse().unwrap());
        Rollout {
            project: "default".into(),
            stack_id: StackId::generate(),
            stack_name: "payments".into(),
            sequence_id: SequenceId(42),
            widens: None,
            is_deletion: false,
            base_sequence_id: Some(SequenceId(41)),
            state: RolloutState::Running,
            stop_reason: None,
            wave: 2,
            waves: 5,
            policy: RolloutPolicy {
                waves: Some(sizes.map(wave).to_vec()),
                max_bad_percent: Some(2),
                max_in_flight: Some(Share::Percent(10)),
                ..RolloutPolicy::default()
            },
            figures: RolloutFigures {
                members: 1204,
                released: 14,
                healthy: 11,
                in_flight: 2,
                owed: 1,
                ..RolloutFigures::default()
            },
            allowed_bad: 0,
            in_flight_limit: 11,
            pending: Some(Pending::Healthy { needed: 13 }),
            soaked_seconds: 0,
            created_by: "ana".into(),
            created_at: ago(600),
            ended_at: None,
        }
    }

    #[test]
    fn rollouts() {
        let stopped = Rollout {
            state: RolloutState::Stopped,
            stop_reason: Some(StopReason::TooManyBad { bad: 1, allowed: 0 }),
            pending: None,
            ..rollout()
        };
        insta::assert_snapshot!(
            [rendered(&whole(vec![rollout()])), rendered(&rollout()), rendered(&stopped)].join("\n\n")
        );
    }

    #[test]
    fn h7_a_rollout_to_gained_agents_names_their_version() {
        let widening = Rollout { widens: Some(SequenceId(41)), base_sequence_id: None, ..rollout() };
        assert_eq!(versions(&widening), "41 to more agents");
        assert!(!reached(&widening).contains("keep"), "the others have nothing yet");
    }

    #[test]
    fn pictures() {
        let soaking = Rollout {
            state: RolloutState::Soaking,
            wave: 3,
            figures: RolloutFigures {
                released: 121,
                healthy: 121,
                owed: 0,
                in_flight: 0,
                ..rollout().figures
            },
            pending: Some(Pending::Soak { left_seconds: 435 }),
            ..rollout()
        };
        let few = Rollout {
            figures: RolloutFigures { members: 3, released: 1, bad: 1, ..RolloutFigures::default() },
            state: RolloutState::Stopped,
            stop_reason: Some(StopReason::TooManyBad { bad: 1, allowed: 0 }),
            wave: 1,
            pending: None,
            ..rollout()
        };
        let options = RenderOptions { now: ago(0), wide: false, headers: true, width: None };
        let shown = [rollout(), soaking, few].map(|rollout| {
            let progress = progress(&rollout).unwrap_or_default();
            let texts = [picture(&rollout, &options), progress, reached(&rollout), announcement(&rollout)];
            texts.join("\n\n")
        });
        insta::assert_snapshot!(shown.join("\n\n---\n\n"));
    }
}

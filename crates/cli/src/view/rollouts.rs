//! Rollouts: how far they are, and what they wait for.

use brokkr_api::rollouts::{Rollout, RolloutState};

use super::course::{self, Course};
use super::table::Table;
use super::text::{age, clean, fields, thousands, when};
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
        let (figures, course) = (&self.figures, Course::from(self));
        let mut pairs = vec![
            ("stack", self.stack_name.clone()),
            ("version", versions(self)),
            ("state", state(self)),
            ("wave", format!("{} of {}: {}", self.wave, self.waves, course.waves())),
            (
                "released",
                format!("to {} of {} agents", thousands(figures.released), thousands(figures.members)),
            ),
            ("of these", course.of_these()),
            ("bad at most", course.bound()),
        ];
        pairs.extend(course.next().map(|next| ("next", next)));
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
    course::state(rollout.state, rollout.stop_reason.as_ref())
}

/// What happens next with a version that was just submitted.
pub fn announcement(rollout: &Rollout) -> String {
    let policy = &rollout.policy;
    let bad = policy.max_bad_percent.map(|percent| format!("{percent}%")).unwrap_or_default();
    let in_flight = policy.max_in_flight.map(|share| share.to_string()).unwrap_or_default();
    format!(
        "released in waves: {}; stops if more than {bad} of its agents are bad, with up to {in_flight} in flight\n\
         brokkr rollout watch {}",
        Course::from(rollout).waves(),
        clean(&rollout.stack_name)
    )
}

/// `wave 2 of 5, next when 13 agents are healthy`; none if the rollout has ended.
pub fn progress(rollout: &Rollout) -> Option<String> {
    let wave = format!("wave {} of {}", rollout.wave, rollout.waves);
    match rollout.state {
        state if state.has_ended() => None,
        RolloutState::Running | RolloutState::Soaking | RolloutState::Gated => {
            Some(Course::from(rollout).next().map_or(wave.clone(), |next| format!("{wave}, next: {next}")))
        }
        state => Some(format!("{wave}, {state}")),
    }
}

/// `the version is on 1 of 3 agents (1 bad); the others keep 41`
pub fn reached(rollout: &Rollout) -> String {
    let figures = &rollout.figures;
    let (released, members) = (thousands(figures.released), thousands(figures.members));
    let of_these = Course::from(rollout).of_these();
    let mut text = format!("it was released to {released} of {members} agents ({of_these})");
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
    lines.extend(Course::from(rollout).drawn());
    lines.push(String::new());
    let course = Course::from(rollout);
    let mut pairs = vec![("agents", course.of_these()), ("bad at most", course.bound())];
    pairs.extend(course.next().map(|next| ("next", next)));
    pairs.push(("begun", when(rollout.created_at, options.now)));
    lines.push(fields(pairs));
    lines.join("\n")
}

#[cfg(test)]
pub mod tests {
    use brokkr_api::rollouts::{Pending, RolloutFigures, RolloutPolicy, Share, StopReason, Wave};
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

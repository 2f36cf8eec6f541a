//! Upgrades of agents: how far they are, and how far each agent is.

use brokkr_api::upgrades::{AgentUpgrade, AgentUpgradeStatus, ReportedUpgrade, UpgradeStep};

use super::course::{self, Course};
use super::table::{BAD, CAREFUL, Cell, FAINT, GOOD, Table, UNDER_WAY, painted};
use super::text::{age, age_or_dash, clean, fields, or_dash, thousands, when};
use super::{Listed, RenderOptions, Show};

impl Listed for AgentUpgrade {
    const NONE: &'static str = "no upgrades of agents yet; begin one with `brokkr agent upgrade --to IMAGE@DIGEST --version VERSION`";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("ID", |upgrade| upgrade.id)
            .plain("VERSION", |upgrade| clean(&upgrade.version))
            .plain("STATE", |upgrade| upgrade.state)
            .plain("WAVE", |upgrade| format!("{} of {}", upgrade.wave, upgrade.waves))
            .plain("OFFERED", |upgrade| {
                format!("{}/{}", thousands(upgrade.figures.released), thousands(upgrade.figures.members))
            })
            .plain("HEALTHY", |upgrade| thousands(upgrade.figures.healthy))
            .plain("BAD", |upgrade| thousands(upgrade.figures.bad))
            .plain("AGE", |upgrade| age(upgrade.created_at, now))
            .sentence("AGENTS", |upgrade| or_dash(upgrade.selector.as_ref()))
            .wide("IMAGE", |upgrade| clean(&upgrade.image))
            .wide("BY", |upgrade| &upgrade.created_by)
    }

    fn name(&self) -> String {
        format!("agent-upgrade/{}", self.id)
    }
}

impl Show for AgentUpgrade {
    fn text(&self, options: &RenderOptions) -> String {
        let (figures, course) = (&self.figures, Course::from(self));
        let agents = self.selector.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string);
        let offered = format!("to {} of {} agents", thousands(figures.released), thousands(figures.members));
        let mut pairs = vec![
            ("id", self.id.to_string()),
            ("version", self.version.clone()),
            ("image", self.image.clone()),
            ("agents", agents),
            ("state", state(self)),
            ("wave", format!("{} of {}: {}", self.wave, self.waves, course.waves())),
            ("offered", offered),
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

impl Listed for AgentUpgradeStatus {
    const NONE: &'static str = "no agents match";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("AGENT", |status| &status.agent)
            .plain("VERSION", |status| or_dash(status.version.as_ref()))
            .plain("STEP", step)
            .plain("SINCE", |status| age_or_dash(status.step_at, now))
            .sentence("REASON", |status| or_dash(status.reason.as_ref().map(clean)))
    }

    fn name(&self) -> String {
        format!("agent/{}", self.agent)
    }
}

fn step(status: &AgentUpgradeStatus) -> Cell {
    match status.step {
        Some(UpgradeStep::Begun) => painted("begun", UNDER_WAY),
        Some(UpgradeStep::TakenOver) => painted("taken over", UNDER_WAY),
        Some(UpgradeStep::Reconciled) => painted("reconciled", GOOD),
        Some(UpgradeStep::Restored) => painted("restored", BAD),
        Some(UpgradeStep::Refused) => painted("refused", CAREFUL),
        None if status.released => painted("offered", UNDER_WAY),
        None => painted("not offered", FAINT),
    }
}

/// `stopped: 1 agent is bad, 0 allowed`
pub fn state(upgrade: &AgentUpgrade) -> String {
    course::state(upgrade.state, upgrade.stop_reason.as_ref())
}

/// `it was offered to 3 of 10 agents (2 healthy, 1 bad)`
pub fn reached(upgrade: &AgentUpgrade) -> String {
    let figures = &upgrade.figures;
    let (released, members) = (thousands(figures.released), thousands(figures.members));
    format!("it was offered to {released} of {members} agents ({})", Course::from(upgrade).of_these())
}

/// The waves as bars, and what happens next.
pub fn picture(upgrade: &AgentUpgrade, options: &RenderOptions) -> String {
    let course = Course::from(upgrade);
    let mut lines = vec![
        format!(
            "upgrade {} to {}: {}; {}",
            upgrade.id,
            clean(&upgrade.version),
            state(upgrade),
            reached(upgrade)
        ),
        String::new(),
    ];
    lines.extend(course.drawn());
    lines.push(String::new());
    let mut pairs = vec![("bad at most", course.bound())];
    pairs.extend(course.next().map(|next| ("next", next)));
    pairs.push(("begun", when(upgrade.created_at, options.now)));
    lines.push(fields(pairs));
    lines.join("\n")
}

/// `1.2.3 restored 5m ago: the new Pod did not start: …`
pub fn last_step(upgrade: &ReportedUpgrade, options: &RenderOptions) -> String {
    let what = match upgrade.step {
        UpgradeStep::Begun => "begun",
        UpgradeStep::TakenOver => "taken over",
        UpgradeStep::Reconciled => "completed",
        UpgradeStep::Restored => "undone: the former image was restored",
        UpgradeStep::Refused => "refused",
    };
    let since = age(upgrade.at, options.now);
    let reason = upgrade.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", clean(reason)));
    format!("{} to {} {what} {since} ago{reason}", upgrade.id, clean(&upgrade.version))
}

#[cfg(test)]
mod tests {
    use brokkr_api::UpgradeId;
    use brokkr_api::rollouts::{RolloutState, StopReason};
    use brokkr_api::upgrades::{ProofCheck, UpgradeReason};

    use super::super::rollouts::tests::rollout;
    use super::super::samples::{ago, options, rendered};
    use super::super::whole;
    use super::*;

    fn upgrade() -> AgentUpgrade {
        let rollout = rollout();
        AgentUpgrade {
            id: UpgradeId(42),
            image: format!("registry.example/brokkr-agent@sha256:{}", "0a".repeat(32)),
            version: "1.2.3".into(),
            selector: "env=prod".parse().ok(),
            state: rollout.state,
            stop_reason: None,
            wave: rollout.wave,
            waves: rollout.waves,
            policy: rollout.policy,
            figures: rollout.figures,
            allowed_bad: rollout.allowed_bad,
            in_flight_limit: rollout.in_flight_limit,
            pending: rollout.pending,
            soaked_seconds: 0,
            created_by: "ana".into(),
            created_at: ago(600),
            ended_at: None,
        }
    }

    fn status(agent: &str, step: Option<UpgradeStep>, reason: Option<UpgradeReason>) -> AgentUpgradeStatus {
        AgentUpgradeStatus {
            agent: agent.into(),
            version: Some("1.2.2".into()),
            released: agent != "eu-6",
            step_at: step.map(|_| ago(300)),
            step,
            reason,
        }
    }

    #[test]
    fn upgrades() {
        let stopped = AgentUpgrade {
            state: RolloutState::Stopped,
            stop_reason: Some(StopReason::TooManyBad { bad: 1, allowed: 0 }),
            pending: None,
            selector: None,
            ..upgrade()
        };
        insta::assert_snapshot!(
            [
                rendered(&whole(vec![upgrade(), stopped.clone()])),
                rendered(&upgrade()),
                picture(&stopped, &options()),
                rendered(&whole(Vec::<AgentUpgrade>::new()))
            ]
            .join("\n\n")
        );
    }

    #[test]
    fn agents() {
        let not_started = UpgradeReason::NotStarted { message: "ErrImagePull: not found".into() };
        let differs =
            UpgradeReason::InstallationDiffers { command: "brokkr-agent install --profile apps".into() };
        let not_proved =
            UpgradeReason::NotProved { check: ProofCheck::Fence, message: "it is not active".into() };
        insta::assert_snapshot!(rendered(&whole(vec![
            status("eu-1", Some(UpgradeStep::Reconciled), None),
            status("eu-2", Some(UpgradeStep::Restored), Some(not_started)),
            status("eu-3", Some(UpgradeStep::Restored), Some(not_proved)),
            status("eu-4", Some(UpgradeStep::Refused), Some(differs)),
            status("eu-5", None, None),
            status("eu-6", None, None),
        ])));
    }

    #[test]
    fn the_last_step_of_an_agent_is_named_with_its_reason() {
        let reason = Some(UpgradeReason::NotConfirmed { seconds: 600 });
        let (id, version, at) = (UpgradeId(42), "1.2.3".to_owned(), ago(300));
        let restored = ReportedUpgrade { id, version, step: UpgradeStep::Restored, at, reason };
        assert_eq!(
            last_step(&restored, &options()),
            "42 to 1.2.3 undone: the former image was restored 5m ago: the new version was not ready within 600 s after the \
             image was changed"
        );
        let reconciled = ReportedUpgrade { step: UpgradeStep::Reconciled, reason: None, ..restored };
        assert_eq!(last_step(&reconciled, &options()), "42 to 1.2.3 completed 5m ago");
    }
}

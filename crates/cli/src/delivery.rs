//! Whether a version is on every agent, or a deletion is complete: decided from the status rows, without I/O.
//!
//! A wait is for one sequence id. Reports about an earlier version do not count, nor do responses of a
//! replica that does not know the submission yet. If the version is rolled out in waves, its rollout decides, too.

use std::collections::BTreeSet;

use brokkr_api::rollouts::{Rollout, RolloutState};
use brokkr_api::status::{StackStatus, State};
use brokkr_api::{AgentId, SequenceId};

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every targeted agent has written this version or a newer one.
    Applied(SequenceId),
    /// Every targeted agent has this version or a newer one, healthy.
    Delivered(SequenceId),
    /// The rollout of this version is complete; without a rollout, as `Delivered`.
    Rollout(SequenceId),
    /// The agents of the first wave have this version, healthy; without a rollout, as `Delivered`.
    Canary(SequenceId),
    /// Every agent that held the stack has reported it gone.
    Removed(SequenceId),
}

/// The progress of one agent towards the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentOutcome {
    Reached,
    Failed,
    Waiting,
    /// The stack does not, or no longer, target this agent.
    NotTargeted,
}

/// When a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The percentage of the targeted agents that have to reach the goal.
    pub min_healthy: u8,
    /// Whether the first failed agent ends the wait.
    pub fail_fast: bool,
}

impl Terms {
    /// Returns how many of these agents have to reach the goal.
    fn needed(self, targeted: usize) -> usize {
        (targeted * usize::from(self.min_healthy)).div_ceil(100)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Reached,
    /// Too many agents failed, and none is still waiting; or one failed, and `fail_fast` is set.
    Failed,
    /// A newer version, if it is known which, replaced the awaited one, which was not on every agent yet.
    Replaced(Option<SequenceId>),
    /// The rollout was stopped or aborted.
    Stopped,
    /// The rollout is complete, but this many agents are bad.
    SomeBad(u64),
    Waiting,
}

impl Goal {
    pub fn outcome(self, row: &StackStatus) -> AgentOutcome {
        match self {
            Self::Applied(sequence) => {
                delivered(sequence, row, &[State::Applied, State::Healthy, State::Degraded])
            }
            Self::Delivered(sequence) | Self::Rollout(sequence) | Self::Canary(sequence) => {
                delivered(sequence, row, &[State::Healthy])
            }
            Self::Removed(marker) => removed(marker, row),
        }
    }

    /// Decides whether the wait ends. `stuck` lists agents on which nothing will change by itself; they count
    /// as failed.
    pub fn verdict(self, rows: &[StackStatus], terms: Terms, stuck: &BTreeSet<AgentId>) -> Verdict {
        let outcome = |row: &StackStatus| match self.outcome(row) {
            AgentOutcome::Waiting if stuck.contains(&row.agent_id) => AgentOutcome::Failed,
            outcome => outcome,
        };
        let outcomes: Vec<AgentOutcome> = rows.iter().map(outcome).collect();
        let count = |wanted: AgentOutcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
        let targeted = outcomes.len() - count(AgentOutcome::NotTargeted);
        // Without targeted agents a removal is complete, but a delivery has not started.
        if targeted == 0 && !matches!(self, Self::Removed(_)) {
            return Verdict::Waiting;
        }
        if let Some(newer) = self.replaced_by(rows, &outcomes) {
            return Verdict::Replaced(Some(newer));
        }
        let failed = count(AgentOutcome::Failed);
        if count(AgentOutcome::Reached) >= terms.needed(targeted) {
            Verdict::Reached
        } else if count(AgentOutcome::Waiting) > 0 && !(terms.fail_fast && failed > 0) {
            Verdict::Waiting
        } else {
            Verdict::Failed
        }
    }

    /// Returns the version that is waited for.
    pub fn sequence(self) -> SequenceId {
        let (Self::Applied(sequence)
        | Self::Delivered(sequence)
        | Self::Rollout(sequence)
        | Self::Canary(sequence)
        | Self::Removed(sequence)) = self;
        sequence
    }

    /// Decides whether the wait ends, by the verdict over the agents and by the rollout of the version.
    pub fn with_rollout(self, of_agents: Verdict, terms: Terms, rollout: &Rollout) -> Verdict {
        let has_ended = rollout.state.has_ended() || rollout.state == RolloutState::Stopped;
        let is_for_rollout = matches!(self, Self::Rollout(_) | Self::Canary(_)) && terms.min_healthy == 100;
        let is_tolerated = has_ended || rollout.figures.bad <= rollout.allowed_bad;
        match of_agents {
            // The agents may be done a moment before the rollout is complete.
            Verdict::Reached if !has_ended && (is_for_rollout || matches!(self, Self::Removed(_))) => {
                self.verdict_of(rollout)
            }
            // Some agents may fail: the rollout decides how many.
            Verdict::Failed if is_for_rollout && !terms.fail_fast && is_tolerated => self.verdict_of(rollout),
            Verdict::Waiting => self.verdict_of(rollout),
            verdict => verdict,
        }
    }

    /// Decides whether the wait ends because of the rollout of the version.
    fn verdict_of(self, rollout: &Rollout) -> Verdict {
        let is_past = rollout.wave > 1 || rollout.state == RolloutState::Soaking;
        // A wave without agents proves nothing.
        let is_first_wave_healthy = is_past && rollout.figures.healthy > 0;
        match (rollout.state, self) {
            (RolloutState::Superseded, _) => Verdict::Replaced(None),
            (RolloutState::Stopped | RolloutState::Aborted, _) => Verdict::Stopped,
            // A rollout without agents is complete, but the delivery has not started.
            (RolloutState::Completed, Self::Rollout(_) | Self::Canary(_)) if rollout.figures.members > 0 => {
                match rollout.figures.bad {
                    0 => Verdict::Reached,
                    bad => Verdict::SomeBad(bad),
                }
            }
            (_, Self::Canary(_)) if is_first_wave_healthy => Verdict::Reached,
            _ => Verdict::Waiting,
        }
    }

    /// Returns whether Pods of this version cannot run on this agent without a change.
    pub fn is_stuck(self, row: &StackStatus) -> bool {
        if matches!(self, Self::Applied(_) | Self::Removed(_)) {
            return false;
        }
        let sequence = self.sequence();
        // A Job may succeed when it is retried.
        let is_retried =
            row.reason.is_crash() && row.objects.first().is_some_and(|note| note.object.kind == "Job");
        let is_about_it = row.state == State::Degraded && row.sequence_id >= Some(sequence);
        is_about_it && !is_retried && row.reason.needs_a_change()
    }

    fn replaced_by(self, rows: &[StackStatus], outcomes: &[AgentOutcome]) -> Option<SequenceId> {
        if matches!(self, Self::Removed(_)) {
            return None;
        }
        let sequence = self.sequence();
        let open = rows.iter().zip(outcomes).filter(|(_, outcome)| **outcome != AgentOutcome::Reached);
        open.filter_map(|(row, _)| row.wanted_sequence_id).filter(|wanted| *wanted > sequence).max()
    }
}

fn delivered(sequence: SequenceId, row: &StackStatus, good: &[State]) -> AgentOutcome {
    if matches!(row.state, State::Removing | State::Removed) || row.wanted_sequence_id.is_none() {
        return AgentOutcome::NotTargeted;
    }
    let knows = row.wanted_sequence_id.is_some_and(|wanted| wanted >= sequence);
    let has = row.sequence_id.is_some_and(|has| has >= sequence);
    match row.state {
        state if good.contains(&state) && knows && has => AgentOutcome::Reached,
        State::Failed if knows && has => AgentOutcome::Failed,
        _ => AgentOutcome::Waiting,
    }
}

fn removed(marker: SequenceId, row: &StackStatus) -> AgentOutcome {
    let knows = row.wanted_sequence_id.is_none_or(|wanted| wanted >= marker);
    match row.state {
        State::Removed if knows => AgentOutcome::Reached,
        // Neither targeted nor held: the agent never had the stack, or removed it earlier.
        _ if row.wanted_sequence_id.is_none() => AgentOutcome::NotTargeted,
        State::Failed if row.sequence_id.is_some_and(|has| has >= marker) => AgentOutcome::Failed,
        _ => AgentOutcome::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::reason::{Message, ObjectRef, Reason};
    use brokkr_api::report::ObjectNote;

    use super::*;
    use crate::view::rollouts::tests::rollout;
    use crate::view::samples::row;

    const GOAL: Goal = Goal::Delivered(SequenceId(42));
    const EVERY_AGENT: Terms = Terms { min_healthy: 100, fail_fast: false };

    impl Goal {
        fn of_all(self, rows: &[StackStatus]) -> Verdict {
            self.verdict(rows, EVERY_AGENT, &BTreeSet::new())
        }
    }

    #[test]
    fn a_share_of_the_agents_is_enough_if_that_is_requested() {
        let most = Terms { min_healthy: 60, fail_fast: false };
        let (good, bad, slow) = (
            row("a", 42, 42, State::Healthy),
            row("b", 42, 42, State::Failed),
            row("c", 42, 41, State::Pending),
        );
        let verdict = |rows: &[&StackStatus], terms| {
            let rows: Vec<StackStatus> = rows.iter().map(|row| (*row).clone()).collect();
            GOAL.verdict(&rows, terms, &BTreeSet::new())
        };
        // 60 % of three agents are two.
        assert_eq!(verdict(&[&good, &bad, &slow], most), Verdict::Waiting);
        assert_eq!(verdict(&[&good, &good, &slow], most), Verdict::Reached);
        assert_eq!(verdict(&[&good, &bad, &bad], most), Verdict::Failed);
        assert_eq!(verdict(&[&good, &good, &bad], most), Verdict::Reached);
        let fast = Terms { min_healthy: 100, fail_fast: true };
        assert_eq!(verdict(&[&good, &bad, &slow], fast), Verdict::Failed);
    }

    #[test]
    fn an_agent_on_which_nothing_will_change_by_itself_has_failed() {
        let mut crashing = row("a", 42, 42, State::Degraded);
        assert!(!GOAL.is_stuck(&crashing));
        crashing.reason = Reason::CrashLoopBackOff;
        assert!(GOAL.is_stuck(&crashing));
        assert!(
            !Goal::Delivered(SequenceId(43)).is_stuck(&crashing),
            "the report is about an earlier version"
        );
        let mut job = crashing.clone();
        let object = ObjectRef { kind: "Job".into(), name: "migrate".into(), ..ObjectRef::default() };
        job.objects = vec![ObjectNote { object, reason: Reason::Error, message: Message::default() }];
        job.reason = Reason::Error;
        assert!(!GOAL.is_stuck(&job), "it is retried");
        for word in ["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes"] {
            job.reason = Reason::from_kubernetes(word);
            assert!(GOAL.is_stuck(&job), "{word}");
        }
        assert_eq!(GOAL.of_all(std::slice::from_ref(&crashing)), Verdict::Waiting);
        let stuck = BTreeSet::from([crashing.agent_id]);
        assert_eq!(GOAL.verdict(&[crashing], EVERY_AGENT, &stuck), Verdict::Failed);
    }

    #[test]
    fn health_of_an_earlier_version_says_nothing() {
        assert_eq!(GOAL.of_all(&[row("a", 42, 41, State::Pending)]), Verdict::Waiting);
        // A replica that does not know 42 yet still reports 41 as healthy.
        assert_eq!(GOAL.of_all(&[row("a", 41, 41, State::Healthy)]), Verdict::Waiting);
        assert_eq!(GOAL.of_all(&[row("a", 41, 41, State::Failed)]), Verdict::Waiting);
        assert_eq!(GOAL.of_all(&[row("a", 42, 42, State::Healthy)]), Verdict::Reached);
    }

    #[test]
    fn every_agent_counts_and_no_agents_is_not_success() {
        assert_eq!(GOAL.of_all(&[]), Verdict::Waiting);
        let (good, slow) = (row("a", 42, 42, State::Healthy), row("b", 42, 42, State::Applied));
        assert_eq!(GOAL.of_all(&[good.clone(), slow.clone()]), Verdict::Waiting);
        let bad = row("c", 42, 42, State::Failed);
        assert_eq!(GOAL.of_all(&[good.clone(), bad.clone(), slow]), Verdict::Waiting, "b may still arrive");
        assert_eq!(GOAL.of_all(&[good.clone(), bad]), Verdict::Failed);
        assert_eq!(GOAL.of_all(&[good, row("d", 42, 41, State::Removing)]), Verdict::Reached);
    }

    #[test]
    fn a_newer_version_is_reported_unless_it_has_arrived_everywhere() {
        assert_eq!(GOAL.of_all(&[row("a", 43, 42, State::Pending)]), Verdict::Replaced(Some(SequenceId(43))));
        assert_eq!(GOAL.of_all(&[row("a", 43, 43, State::Healthy)]), Verdict::Reached);
    }

    #[test]
    fn a_rollout_ends_a_wait() {
        let (canary, all) = (Goal::Canary(SequenceId(42)), Goal::Rollout(SequenceId(42)));
        let in_state = |state, wave, bad| {
            let mut rollout = rollout();
            (rollout.state, rollout.wave, rollout.figures.bad) = (state, wave, bad);
            rollout
        };
        let verdicts = |rollout: &Rollout| [GOAL, all, canary].map(|goal| goal.verdict_of(rollout));
        use RolloutState::{Aborted, Completed, Paused, Running, Soaking, Stopped, Superseded};
        use Verdict::{Reached, Replaced, SomeBad, Waiting};
        for (rollout, expected) in [
            (in_state(Running, 1, 0), [Waiting, Waiting, Waiting]),
            (in_state(Paused, 1, 0), [Waiting, Waiting, Waiting]),
            (in_state(Soaking, 1, 0), [Waiting, Waiting, Reached]),
            (in_state(Running, 2, 0), [Waiting, Waiting, Reached]),
            (in_state(Completed, 5, 0), [Waiting, Reached, Reached]),
            (in_state(Completed, 5, 2), [Waiting, SomeBad(2), SomeBad(2)]),
        ] {
            assert_eq!(verdicts(&rollout), expected, "{} in wave {}", rollout.state, rollout.wave);
        }
        for state in [Stopped, Aborted] {
            assert_eq!(verdicts(&in_state(state, 2, 1)), [const { Verdict::Stopped }; 3]);
        }
        assert_eq!(verdicts(&in_state(Superseded, 2, 0)), [const { Replaced(None) }; 3]);
        let mut empty = in_state(Completed, 1, 0);
        empty.figures.members = 0;
        assert_eq!(verdicts(&empty), [const { Waiting }; 3], "no agent is targeted yet");
        let running = in_state(Running, 1, 0);
        let with = |goal: Goal, terms| goal.with_rollout(Reached, terms, &running);
        assert_eq!(with(all, EVERY_AGENT), Waiting, "the rollout is not complete yet");
        let mut some_bad = in_state(Running, 5, 2);
        some_bad.allowed_bad = 2;
        assert_eq!(all.with_rollout(Verdict::Failed, EVERY_AGENT, &some_bad), Waiting, "so many are allowed");
        some_bad.state = Completed;
        assert_eq!(all.with_rollout(Verdict::Failed, EVERY_AGENT, &some_bad), SomeBad(2));
        (some_bad.state, some_bad.allowed_bad) = (Running, 1);
        assert_eq!(all.with_rollout(Verdict::Failed, EVERY_AGENT, &some_bad), Verdict::Failed);
        assert_eq!(all.with_rollout(Reached, EVERY_AGENT, &empty), Reached, "agents joined later");
        let removed = Goal::Removed(SequenceId(42));
        assert_eq!(removed.with_rollout(Reached, EVERY_AGENT, &running), Waiting, "it is not deleted yet");
        assert_eq!(removed.verdict_of(&in_state(Stopped, 1, 0)), Verdict::Stopped);
        let mut unproven = in_state(Soaking, 1, 0);
        unproven.figures.healthy = 0;
        assert_eq!(canary.verdict_of(&unproven), Waiting, "no agent has the labels of the wave");
        assert_eq!(
            (with(all, Terms { min_healthy: 60, ..EVERY_AGENT }), with(GOAL, EVERY_AGENT)),
            (Reached, Reached)
        );
    }

    #[test]
    fn applied_is_enough_if_that_is_the_goal() {
        let applied = row("a", 42, 42, State::Applied);
        assert_eq!(GOAL.of_all(std::slice::from_ref(&applied)), Verdict::Waiting);
        let goal = Goal::Applied(SequenceId(42));
        assert_eq!(goal.of_all(&[applied]), Verdict::Reached);
        assert_eq!(goal.of_all(&[row("a", 42, 41, State::Pending)]), Verdict::Waiting);
        assert_eq!(goal.of_all(&[]), Verdict::Waiting);
    }

    #[test]
    fn a_removal_is_reached_only_when_every_agent_has_seen_it_gone() {
        let goal = Goal::Removed(SequenceId(50));
        assert_eq!(goal.of_all(&[row("a", 42, 42, State::Healthy)]), Verdict::Waiting);
        assert_eq!(goal.of_all(&[row("a", 50, 50, State::Blocked)]), Verdict::Waiting);
        let gone = row("a", 50, 50, State::Removed);
        assert_eq!(goal.of_all(&[gone.clone(), row("b", 50, 42, State::Removing)]), Verdict::Waiting);
        assert_eq!(goal.of_all(&[gone]), Verdict::Reached);
        assert_eq!(goal.of_all(&[]), Verdict::Reached);
    }
}

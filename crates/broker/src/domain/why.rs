//! Explains why a stack is not healthy on an agent: the first hop that is not passed, and the evidence. A
//! pure function, so that the routes of stacks and of agents give the same answer.
//!
//! | file     | contents                                                          |
//! |----------|-------------------------------------------------------------------|
//! | `agent`  | problems of the agent itself                                      |
//! | `cause`  | which cause a reported reason maps to                             |
//! | `misses` | which labels keep a selector from matching                        |
//! | `advice` | what to do next, for each cause                                   |

mod advice;
mod agent;
mod cause;
mod misses;
mod refusal;
mod rollouts;

use brokkr_api::SequenceId;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, Transition};
use brokkr_api::status::State;
use brokkr_api::why::{Broken, Cause, Hop, Presence};

use self::advice::advised;
pub use self::advice::{remedy, widened_grant};
pub use self::agent::{AgentContact, Refused, agent_trouble};
pub use self::cause::cause_of_notes;
pub use self::rollouts::awaited_rollout;
use brokkr_api::rollouts::Rollout;

use super::envelope::{awaited, desired};
use super::facts::{AgentFacts, StackFacts};
use super::status::{LastReport, state};
use super::targeting::reaches;

/// What is known about a stack on an agent.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub agent: &'a AgentFacts,
    pub stack: &'a StackFacts,
    pub report: Option<&'a LastReport>,
    pub seen: &'a AgentContact,
    pub past: Past,
    /// The rollout that the agent waits for: see [`awaited_rollout`].
    pub rollout: Option<&'a Rollout>,
}

/// The history of the stack, and how widespread the problem is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Whether there is a version to roll back to.
    pub earlier: bool,
    /// The version that the agent has, if it is newer than every version in the database.
    pub ahead: Option<SequenceId>,
    /// How many agents the stack targets.
    pub targeted: u64,
    /// At least how many of them have reported the newest version as failed or degraded.
    pub failing: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: State,
    pub wanted: Option<SequenceId>,
    pub hops: Hops,
    pub broken: Option<Broken>,
    pub evidence: Vec<String>,
}

/// Explains the state of a stack on an agent.
#[must_use]
pub fn why(case: &Case<'_>) -> Verdict {
    // An agent does not begin a version that is withdrawn.
    let has_begun = |version: SequenceId| {
        let is_begun = |report: &LastReport| report.transition != Transition::Removed;
        case.report.is_some_and(|report| report.sequence_id == version && is_begun(report))
    };
    let wanted = desired(case.agent, case.stack);
    let wanted = wanted.filter(|wanted| !wanted.withdrawn || has_begun(wanted.sequence_id()));
    let goal = wanted.as_ref().map(|wanted| match wanted.removal {
        None => (rollouts::kept(case, wanted.sequence_id()).unwrap_or(wanted.sequence_id()), None),
        removal => (wanted.sequence_id(), removal),
    });
    let shown = goal.or_else(|| awaited(case.agent, case.stack).map(|awaited| (awaited, None)));
    let state = state(shown, case.report.map(|report| (report.sequence_id, &report.transition)));
    let about = case
        .report
        .filter(|report| goal.is_none_or(|(sequence, _)| sequence == report.sequence_id))
        .filter(|report| {
            report.transition != Transition::Removed || goal.is_none_or(|(_, removal)| removal.is_some())
        });
    let mut hops = about.map(|report| report.hops).unwrap_or_default();
    let is_goal = |sequence| goal.is_some_and(|(goal, _)| goal == sequence);
    if let Some(wanted) = wanted.as_ref().filter(|wanted| is_goal(wanted.sequence_id())) {
        hops.published.get_or_insert(wanted.object.published_at);
        hops.targeted.get_or_insert(wanted.targeted_at);
        hops.released.get_or_insert(wanted.released_at);
    }
    // From here on only reports about the target version count.
    let current = Case { report: about, ..*case };
    let mut evidence = Vec::new();
    let held_back = rollouts::held_back(&current, goal.map(|(sequence, _)| sequence));
    // A version is released only to agents that are connected.
    let trouble = held_back.as_ref().and_then(|_| agent_trouble(case.agent, case.seen));
    let not_begun = wanted.as_ref().and_then(|wanted| rollouts::not_begun(&current, wanted));
    let not_begun = not_begun.map(|waits| agent_trouble(case.agent, case.seen).unwrap_or(waits));
    let trouble = trouble.or(not_begun);
    let broken = match goal {
        None => nothing_wanted(&current, &mut evidence).or(trouble),
        Some((sequence, removal)) => restored(&current, sequence).or(trouble).or_else(|| match removal {
            Some(_) => removing(&current, sequence, state, &mut evidence),
            None => delivering(&current, sequence, &hops, &mut evidence),
        }),
    };
    let broken = broken.or(held_back);
    if let Some(older) = case.report.filter(|_| about.is_none()) {
        evidence.push(format!("the last report was {} at {}", older.transition, older.sequence_id));
    }
    evidence.push(format!("the agent is {}, {}", case.agent.status, case.seen.last()));
    if let Some(refused) = case.seen.refused_lately() {
        let ago = case.seen.since(refused.at);
        evidence.push(format!("a request in the agent's name was refused {ago} ago: {}", refused.because));
    }
    Verdict { state, wanted: shown.map(|(sequence, _)| sequence), hops, broken, evidence }
}

fn nothing_wanted(case: &Case<'_>, evidence: &mut Vec<String>) -> Option<Broken> {
    let Case { agent, stack, .. } = *case;
    let name = &stack.name;
    if stack.deleted {
        evidence.push(format!("the stack {name} was deleted, and the agent no longer holds it"));
        return None;
    }
    if reaches(agent, stack) && stack.has_object() {
        return None;
    }
    if reaches(agent, stack) {
        let message = format!("nothing has been submitted to {name} yet");
        return Some(advised(case, Hop::Published, Cause::NothingSubmitted, message));
    }
    if !stack.grants.cover(agent) {
        let message = format!("the project {} has no grant for the agent {}", stack.project, agent.name);
        return Some(advised(case, Hop::Targeted, Cause::NotGranted, message));
    }
    evidence.extend(misses::near_misses(agent, stack));
    let message = format!("the stack {name} does not target the agent {}", agent.name);
    Some(advised(case, Hop::Targeted, Cause::NotTargeted, message))
}

/// Returns what a restore of the database left unsettled, if anything. Until it is settled, no other cause
/// matters.
fn restored(case: &Case<'_>, wanted: SequenceId) -> Option<Broken> {
    if let Some(because) = &case.seen.hold {
        let message = format!("the broker is on hold and sends no changes to agents: {because}");
        return Some(advised(case, Hop::Released, Cause::OnHold, message));
    }
    let ahead = case.past.ahead.filter(|ahead| *ahead > wanted)?;
    let message = format!(
        "the agent {} has version {ahead}, but the restored database has {wanted}; agents never go back to an older version",
        case.agent.name
    );
    Some(advised(case, Hop::Fetched, Cause::AgentAhead, message))
}

fn removing(
    case: &Case<'_>,
    sequence: SequenceId,
    state: State,
    evidence: &mut Vec<String>,
) -> Option<Broken> {
    if let Some(report) = case.report {
        objects(report, evidence);
    }
    match (state, case.report) {
        (State::Removed, _) => None,
        (State::Blocked, Some(report)) => Some(blocked(case, report)),
        (State::Failed, Some(report)) => {
            let cause = cause::of_report(report).unwrap_or(Cause::Failed);
            Some(advised(case, Hop::Pruned, cause, text(report, "the removal failed")))
        }
        _ => Some(agent_trouble(case.agent, case.seen).unwrap_or_else(|| {
            let message = format!("removal {sequence} is in progress; some objects still exist");
            advised(case, Hop::Pruned, Cause::Removing, message)
        })),
    }
}

fn delivering(
    case: &Case<'_>,
    sequence: SequenceId,
    hops: &Hops,
    evidence: &mut Vec<String>,
) -> Option<Broken> {
    let trouble = agent_trouble(case.agent, case.seen);
    let Some(report) = case.report else {
        return Some(trouble.unwrap_or_else(|| {
            let message = format!("the agent is connected but has not reported {sequence} yet");
            advised(case, Hop::Fetched, Cause::NotReportedYet, message)
        }));
    };
    objects(report, evidence);
    let contest = condition(report, ConditionKind::Contested, ConditionStatus::True);
    let changed = condition(report, ConditionKind::Drifted, ConditionStatus::True);
    evidence.extend(
        contest
            .into_iter()
            .chain(changed)
            .map(|condition| format!("{}: {}", condition.kind, condition.message)),
    );
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    match &report.transition {
        Transition::Failed => {
            let hop = cause::hop_of_failure(report, hops);
            let cause = cause::of_report(report).unwrap_or(Cause::Failed);
            Some(advised(case, hop, cause, text(report, "the agent failed to apply the version")))
        }
        Transition::Blocked => Some(blocked(case, report)),
        _ if waits.is_some() => Some(blocked(case, report)),
        Transition::Degraded => {
            let cause = cause::of_report(report).unwrap_or(Cause::Degraded);
            Some(advised(case, Hop::Healthy, cause, text(report, "an object is no longer ready")))
        }
        Transition::Applied => {
            let ready = condition(report, ConditionKind::Ready, ConditionStatus::False);
            let cause = ready.and_then(|ready| cause::of(&ready.reason));
            let message = ready.map_or_else(
                || format!("{} of {} resources are ready", report.ready, report.total).into(),
                |ready| ready.message.clone(),
            );
            Some(advised(case, Hop::Healthy, cause.unwrap_or(Cause::NotReady), message))
        }
        // A newer agent reports something that this broker does not know: shown, not interpreted.
        Transition::Other(word) => {
            let message = format!("the agent reports {word}, which this broker does not know");
            Some(advised(case, Hop::Healthy, Cause::Other, report.message.clone().or(|| message.into())))
        }
        // The last report was good, but it may no longer be true if the agent is gone.
        Transition::Healthy
        | Transition::Repaired
        | Transition::Drifted
        | Transition::Suspended
        | Transition::Resumed
        | Transition::Removed => trouble
            .filter(|trouble| trouble.cause != Cause::AgentLate)
            .filter(|trouble| trouble.cause != Cause::AgentRefused || case.seen.presence != Presence::Fresh)
            .map(|trouble| Broken { hop: Hop::Reported, ..trouble })
            // Every hop was passed, and the agent is well; but another manager may keep changing the objects.
            .or_else(|| Some(advised(case, Hop::Applied, Cause::Contested, contest?.message.clone()))),
    }
}

/// Explains a pending prune or removal, or a frozen stack.
fn blocked(case: &Case<'_>, report: &LastReport) -> Broken {
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    let of_condition = waits.map(|condition| condition.message.clone()).filter(|message| !message.is_empty());
    let message = of_condition.unwrap_or_else(|| text(report, "a removal is pending"));
    let reason = waits.map(|waits| &waits.reason);
    let cause = reason.and_then(cause::of).or_else(|| cause::of_report(report)).unwrap_or(Cause::Blocked);
    // A stack outside its grant is neither written nor deleted; a kind that cannot be watched is not written.
    let unwritten = matches!(cause, Cause::NotGranted | Cause::Suspended | Cause::WaitingForWave)
        || matches!(report.reason, Reason::CannotWatch { .. });
    let hop = if unwritten { Hop::Applied } else { Hop::Pruned };
    advised(case, hop, cause, message)
}

fn condition(report: &LastReport, kind: ConditionKind, status: ConditionStatus) -> Option<&Condition> {
    report.conditions.iter().find(|condition| condition.kind == kind && condition.status == status)
}

fn text(report: &LastReport, otherwise: &str) -> Message {
    report
        .message
        .clone()
        .or(|| report.reason.message())
        .or(|| Message::new(report.reason.code()))
        .or(|| otherwise.into())
}

fn objects(report: &LastReport, evidence: &mut Vec<String>) {
    for note in &report.objects {
        let what = [note.reason.code().to_owned(), note.message.to_string()];
        let what: Vec<String> = what.into_iter().filter(|text| !text.is_empty()).collect();
        evidence.push(format!("{}: {}", note.object, what.join(": ")));
    }
}

#[cfg(test)]
mod tests;

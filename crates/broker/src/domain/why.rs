//! Why a stack is not as it should be on an agent: the first hop that is not passed, and what speaks for it. A function
//! of what is known, so that CLI, API and console all give the same answer.
//!
//! | file     | what it knows                                                     |
//! |----------|-------------------------------------------------------------------|
//! | `agent`  | what is wrong with the agent itself                               |
//! | `cause`  | which cause a word in a report stands for                         |
//! | `misses` | by which labels selectors miss                                    |
//! | `advice` | what to do next, for each cause                                   |

mod advice;
mod agent;
mod cause;
mod misses;

use brokkr_api::SequenceId;
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, Transition};
use brokkr_api::status::State;
use brokkr_api::why::{Broken, Cause, Hop, Presence};

use self::advice::advised;
pub use self::advice::widened_grant;
pub use self::agent::{Refused, Seen, agent_trouble};
use super::envelope::desired;
use super::facts::{AgentFacts, StackFacts};
use super::status::{LastReport, state};
use super::targeting::{reaches, released_to};

/// What is known about a stack on an agent.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub agent: &'a AgentFacts,
    pub stack: &'a StackFacts,
    pub report: Option<&'a LastReport>,
    pub seen: &'a Seen,
    pub past: Past,
}

/// What is known about the stack's history, beyond the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// There is a version that a roll-back would go to.
    pub earlier: bool,
    /// What the agent says it has, where that is newer than everything in the database.
    pub ahead: Option<SequenceId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: State,
    pub wanted: Option<SequenceId>,
    pub hops: Hops,
    pub broken: Option<Broken>,
    pub evidence: Vec<String>,
}

/// The answer for a stack on an agent.
#[must_use]
pub fn why(case: &Case<'_>) -> Verdict {
    let wanted = desired(case.agent, case.stack);
    let goal = wanted.as_ref().map(|wanted| (wanted.sequence_id(), wanted.removal));
    let state = state(goal, case.report.map(|report| (report.sequence_id, report.transition)));
    let about = case
        .report
        .filter(|report| goal.is_none_or(|(sequence, _)| sequence == report.sequence_id))
        .filter(|report| {
            report.transition != Transition::Removed || goal.is_none_or(|(_, removal)| removal.is_some())
        });
    let mut hops = about.map(|report| report.hops).unwrap_or_default();
    if let Some(wanted) = &wanted {
        hops.published.get_or_insert(wanted.object.published_at);
        hops.targeted.get_or_insert(wanted.targeted_at);
        hops.released.get_or_insert(wanted.released_at);
    }
    // From here on only what speaks of the wanted object counts.
    let current = Case { report: about, ..*case };
    let mut evidence = Vec::new();
    let broken = match goal {
        None => nothing_wanted(&current, &mut evidence),
        Some((sequence, removal)) => restored(&current, sequence).or_else(|| match removal {
            Some(_) => removing(&current, sequence, state, &mut evidence),
            None => delivering(&current, sequence, &hops, &mut evidence),
        }),
    };
    if let Some(older) = case.report.filter(|_| about.is_none()) {
        evidence.push(format!("its last word was {} at {}", older.transition, older.sequence_id));
    }
    evidence.push(format!("the agent is {}, {}", case.agent.status, case.seen.last()));
    if let Some(refused) = case.seen.refused_lately() {
        let ago = case.seen.since(refused.at);
        evidence.push(format!("somebody in its name was refused {ago} ago: {}", refused.because));
    }
    Verdict { state, wanted: goal.map(|(sequence, _)| sequence), hops, broken, evidence }
}

fn nothing_wanted(case: &Case<'_>, evidence: &mut Vec<String>) -> Option<Broken> {
    let Case { agent, stack, .. } = *case;
    let name = &stack.name;
    if stack.deleted {
        evidence.push(format!("the stack {name} was deleted, and the agent no longer has it"));
        return None;
    }
    if reaches(agent, stack) && released_to(agent, stack).is_none() {
        let message = format!("nothing was submitted to {name} yet");
        return Some(advised(case, Hop::Published, Cause::NothingSubmitted, message));
    }
    if !stack.grants.cover(agent) {
        let message = format!("the project {} was not granted the agent {}", stack.project, agent.name);
        return Some(advised(case, Hop::Targeted, Cause::NotGranted, message));
    }
    evidence.extend(misses::near_misses(agent, stack));
    let message = format!("the stack {name} does not target the agent {}", agent.name);
    Some(advised(case, Hop::Targeted, Cause::NotTargeted, message))
}

/// After a restore nothing else matters before it is settled.
fn restored(case: &Case<'_>, wanted: SequenceId) -> Option<Broken> {
    if let Some(because) = &case.seen.hold {
        let message = format!("the broker is on hold, and agents are told nothing: {because}");
        return Some(advised(case, Hop::Released, Cause::OnHold, message));
    }
    let ahead = case.past.ahead.filter(|ahead| *ahead > wanted)?;
    let message = format!(
        "the agent {} has {ahead}, the restored database {wanted}; an agent never goes back",
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
            let message = format!("the stack is being removed, with {sequence}; not everything is gone yet");
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
            let message = format!("the agent is there, and has told nothing of {sequence} yet");
            advised(case, Hop::Fetched, Cause::NotReportedYet, message)
        }));
    };
    objects(report, evidence);
    let fight = condition(report, ConditionKind::Contested, ConditionStatus::True);
    let changed = condition(report, ConditionKind::Drifted, ConditionStatus::True);
    evidence.extend(fight.into_iter().chain(changed).map(|told| format!("{}: {}", told.kind, told.message)));
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    match report.transition {
        Transition::Failed => {
            let hop = cause::hop_of_failure(report, hops);
            let cause = cause::of_report(report).unwrap_or(Cause::Failed);
            Some(advised(case, hop, cause, text(report, "it failed")))
        }
        Transition::Blocked => Some(blocked(case, report)),
        _ if waits.is_some() => Some(blocked(case, report)),
        Transition::Degraded => {
            let cause = cause::of_report(report).unwrap_or(Cause::Degraded);
            Some(advised(case, Hop::Healthy, cause, text(report, "something is no longer ready")))
        }
        Transition::Applied => {
            let ready = condition(report, ConditionKind::Ready, ConditionStatus::False);
            let told = ready.and_then(|ready| cause::of(&ready.reason, &ready.message));
            let message = ready.map_or_else(
                || format!("{} of {} resources are ready", report.ready, report.total),
                |ready| ready.message.clone(),
            );
            Some(advised(case, Hop::Healthy, told.unwrap_or(Cause::NotReady), message))
        }
        // What an agent said that is no longer there may not hold any more.
        Transition::Healthy | Transition::Repaired | Transition::Removed => trouble
            .filter(|trouble| trouble.cause != Cause::AgentLate)
            .filter(|trouble| trouble.cause != Cause::AgentRefused || case.seen.presence != Presence::Fresh)
            .map(|trouble| Broken { hop: Hop::Reported, ..trouble })
            // Every hop was passed, and what was written does not stay.
            .or_else(|| Some(advised(case, Hop::Applied, Cause::Contested, fight?.message.clone()))),
    }
}

/// A prune or removal that waits, or a stack that is frozen.
fn blocked(case: &Case<'_>, report: &LastReport) -> Broken {
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    let told = waits.map(|condition| condition.message.clone()).filter(|text| !text.is_empty());
    let message = told.unwrap_or_else(|| text(report, "a removal waits for something"));
    let approval =
        waits.is_some_and(|waits| waits.reason.contains("Approv")) || report.reason.contains("Approv");
    let cause = match cause::of_report(report) {
        _ if approval => Cause::AwaitsApproval,
        Some(cause) => cause,
        None => Cause::Blocked,
    };
    // Frozen by its grant: neither written nor deleted. And what cannot be watched is not written either.
    let unwritten = cause == Cause::NotGranted || report.reason == "CannotWatch";
    let hop = if unwritten { Hop::Applied } else { Hop::Pruned };
    advised(case, hop, cause, message)
}

fn condition(report: &LastReport, kind: ConditionKind, status: ConditionStatus) -> Option<&Condition> {
    report.conditions.iter().find(|condition| condition.kind == kind && condition.status == status)
}

fn text(report: &LastReport, otherwise: &str) -> String {
    [&report.message, &report.reason]
        .into_iter()
        .find(|text| !text.is_empty())
        .map_or_else(|| otherwise.to_owned(), Clone::clone)
}

fn objects(report: &LastReport, evidence: &mut Vec<String>) {
    for note in &report.objects {
        let what: Vec<&str> = [note.reason.as_str(), note.message.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        evidence.push(format!("{}: {}", note.object, what.join(": ")));
    }
}

#[cfg(test)]
mod tests;

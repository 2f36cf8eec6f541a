//! Why a stack is not as it should be on an agent: the first hop that is not passed, and what speaks for it. A function
//! of what is known, so that CLI, API and console all give the same answer.

use brokkr_api::SequenceId;
use brokkr_api::agents::AgentStatus;
use brokkr_api::report::{Condition, ConditionKind, ConditionStatus, Hops, Transition};
use brokkr_api::selector::{Requirement, Selector};
use brokkr_api::status::State;
use brokkr_api::why::{Broken, Cause, Hop, Presence};
use jiff::Timestamp;

use super::envelope::wanted;
use super::facts::{AgentFacts, StackFacts};
use super::status::{LastReport, state};
use super::targeting::{reaches, released_to};

/// Selectors that nearly matched are named, the nearest first; not all of them.
const NEAR_MISSES: usize = 3;

/// What is known about an agent beyond the index.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub presence: Presence,
    pub last_seen: Option<Timestamp>,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: State,
    pub wanted: Option<SequenceId>,
    pub hops: Hops,
    pub broken: Option<Broken>,
    pub evidence: Vec<String>,
}

fn broken(hop: Hop, cause: Cause, message: impl Into<String>, next: impl Into<String>) -> Broken {
    Broken { hop, cause, message: message.into(), next: next.into() }
}

/// What is wrong with the agent itself, whatever the stack.
#[must_use]
pub fn agent_trouble(agent: &AgentFacts, seen: Seen) -> Option<Broken> {
    let name = &agent.name;
    let at = Hop::Fetched;
    if agent.status == AgentStatus::Inactive {
        let message = format!("the agent {name} is INACTIVE and gets no deployment objects");
        return Some(broken(
            at,
            Cause::AgentInactive,
            message,
            format!("brokkr agent set-status {name} active"),
        ));
    }
    if agent.session.tied {
        let message = format!("two processes claim to be {name}, and both hold");
        let next = "find the second process; a cloned cluster needs a join token of its own";
        return Some(broken(at, Cause::SessionTied, message, next));
    }
    let look = "look at the agent in its cluster: kubectl -n brokkr-system logs deploy/brokkr-agent";
    match seen.presence {
        Presence::Never => {
            let message = format!("the agent {name} has never asked for its target state");
            Some(broken(at, Cause::AgentNeverSeen, message, look))
        }
        Presence::Silent => {
            let message = format!("the agent {name} is silent; it was {}", last_seen(seen));
            Some(broken(at, Cause::AgentSilent, message, look))
        }
        Presence::Late => {
            let message = format!("the agent {name} is late; it was {}", last_seen(seen));
            Some(broken(at, Cause::AgentLate, message, "wait a little; if it stays away, look at the agent"))
        }
        Presence::Fresh => None,
    }
}

fn last_seen(seen: Seen) -> String {
    seen.last_seen.map_or_else(
        || "never seen".to_owned(),
        |at| {
            let seconds = seen.now.duration_since(at).as_secs().max(0);
            let age = match seconds {
                0..120 => format!("{seconds} s"),
                120..7200 => format!("{} min", seconds / 60),
                7200..172_800 => format!("{} h", seconds / 3600),
                _ => format!("{} days", seconds / 86_400),
            };
            format!("last seen {age} ago")
        },
    )
}

/// The answer for a stack on an agent.
#[must_use]
pub fn why(agent: &AgentFacts, stack: &StackFacts, report: Option<&LastReport>, seen: Seen) -> Verdict {
    let wanted = wanted(agent, stack);
    let goal = wanted.as_ref().map(|wanted| (wanted.sequence_id(), wanted.removal));
    let state = state(goal, report.map(|report| (report.sequence_id, report.transition)));
    let about = report
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
    let mut evidence = Vec::new();
    let broken = match &goal {
        None => nothing_wanted(agent, stack, &mut evidence),
        Some((sequence, Some(_))) => removing(*sequence, state, about, agent, seen, &mut evidence),
        Some((sequence, None)) => delivering(*sequence, about, &hops, agent, seen, &mut evidence),
    };
    if about.is_none()
        && let Some(older) = report
    {
        evidence.push(format!("its last word was {} at {}", older.transition, older.sequence_id));
    }
    evidence.push(format!("the agent is {}, {}", agent.status, last_seen(seen)));
    Verdict { state, wanted: goal.map(|(sequence, _)| sequence), hops, broken, evidence }
}

fn nothing_wanted(agent: &AgentFacts, stack: &StackFacts, evidence: &mut Vec<String>) -> Option<Broken> {
    let name = &stack.name;
    if stack.deleted {
        evidence.push(format!("the stack {name} was deleted, and the agent no longer has it"));
        return None;
    }
    if reaches(agent, stack) && released_to(agent, stack).is_none() {
        let message = format!("nothing was submitted to {name} yet");
        let next = format!("brokkr apply -f FILE --stack {name}");
        return Some(broken(Hop::Published, Cause::NothingSubmitted, message, next));
    }
    if !stack.grants.cover(agent) {
        let message = format!("the project {} was not granted the agent {}", stack.project, agent.name);
        let next = "an admin grants it, with a selector that matches the agent's labels (docs/grants.md)";
        return Some(broken(Hop::Targeted, Cause::NotGranted, message, next));
    }
    evidence.extend(near_misses(agent, stack));
    let message = format!("the stack {name} does not target the agent {}", agent.name);
    let next = format!(
        "name the agent, correct its labels, or change the selector: brokkr apply --stack {name} --to …"
    );
    Some(broken(Hop::Targeted, Cause::NotTargeted, message, next))
}

/// Which selectors nearly match, and by which labels they miss; the nearest first.
fn near_misses(agent: &AgentFacts, stack: &StackFacts) -> Vec<String> {
    if stack.selectors.is_empty() {
        let others = stack.targets.len();
        return vec![if others == 0 {
            "the stack targets nobody".to_owned()
        } else {
            format!("the stack names {others} other agents, and selects none")
        }];
    }
    let misses = |selector: &Selector| -> Vec<Requirement> {
        let all = selector.requirements().iter();
        all.filter(|requirement| !requirement.holds(|key| agent.labels.get(key))).cloned().collect()
    };
    let mut selectors: Vec<_> =
        stack.selectors.iter().map(|target| (misses(&target.selector), &target.selector)).collect();
    selectors.sort_by_key(|(missing, _)| missing.len());
    let told = selectors.iter().take(NEAR_MISSES).map(|(missing, selector)| {
        let missing: Vec<String> = missing.iter().map(|requirement| miss(agent, requirement)).collect();
        format!("selector {selector} misses: {}", missing.join("; "))
    });
    told.collect()
}

fn miss(agent: &AgentFacts, requirement: &Requirement) -> String {
    let key = match requirement {
        Requirement::In { key, .. }
        | Requirement::NotIn { key, .. }
        | Requirement::Exists { key }
        | Requirement::Absent { key } => key,
    };
    match agent.labels.get(key) {
        Some(value) => format!("it wants {requirement}, the agent has {key}={value}"),
        None => format!("it wants {requirement}, the agent has no label {key}"),
    }
}

fn removing(
    sequence: SequenceId,
    state: State,
    about: Option<&LastReport>,
    agent: &AgentFacts,
    seen: Seen,
    evidence: &mut Vec<String>,
) -> Option<Broken> {
    if let Some(report) = about {
        objects(report, evidence);
    }
    let told = |report: &LastReport, otherwise: &str| text(report, otherwise);
    match (state, about) {
        (State::Removed, _) => None,
        (State::Blocked, Some(report)) => Some(blocked(report)),
        (State::Failed, Some(report)) => {
            let message = told(report, "the removal failed");
            Some(broken(
                Hop::Pruned,
                Cause::Failed,
                message,
                "see what the objects say; the agent tries again",
            ))
        }
        _ => Some(agent_trouble(agent, seen).unwrap_or_else(|| {
            let message = format!("the stack is being removed, with {sequence}; not everything is gone yet");
            broken(Hop::Pruned, Cause::Removing, message, "wait; what blocks is named as soon as it is known")
        })),
    }
}

fn delivering(
    sequence: SequenceId,
    about: Option<&LastReport>,
    hops: &Hops,
    agent: &AgentFacts,
    seen: Seen,
    evidence: &mut Vec<String>,
) -> Option<Broken> {
    let trouble = agent_trouble(agent, seen);
    let Some(report) = about else {
        return Some(trouble.unwrap_or_else(|| {
            let message = format!("the agent is there, and has told nothing of {sequence} yet");
            broken(Hop::Fetched, Cause::NotReportedYet, message, "wait; then look at the agent's log")
        }));
    };
    objects(report, evidence);
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    match report.transition {
        Transition::Failed => {
            let hop = [(hops.fetched, Hop::Fetched), (hops.verified, Hop::Verified)]
                .into_iter()
                .find_map(|(at, hop)| at.is_none().then_some(hop))
                .unwrap_or(Hop::Applied);
            Some(broken(
                hop,
                Cause::Failed,
                text(report, "it failed"),
                "correct the manifest or what it needs, and apply again",
            ))
        }
        Transition::Blocked => Some(blocked(report)),
        _ if waits.is_some() => Some(blocked(report)),
        Transition::Degraded => Some(broken(
            Hop::Healthy,
            Cause::Degraded,
            text(report, "something is no longer ready"),
            "see what the objects say",
        )),
        Transition::Applied => {
            let ready = condition(report, ConditionKind::Ready, ConditionStatus::False);
            let message = ready.map_or_else(
                || format!("{} of {} resources are ready", report.ready, report.total),
                |ready| ready.message.clone(),
            );
            Some(broken(Hop::Healthy, Cause::NotReady, message, "see what the objects say, or wait for them"))
        }
        // What an agent said that is no longer there may not hold any more.
        Transition::Healthy | Transition::Repaired | Transition::Removed => trouble
            .filter(|trouble| trouble.cause != Cause::AgentLate)
            .map(|trouble| Broken { hop: Hop::Reported, ..trouble }),
    }
}

/// A prune or removal that waits.
fn blocked(report: &LastReport) -> Broken {
    let waits = condition(report, ConditionKind::PrunePending, ConditionStatus::True);
    let told = waits.map(|condition| condition.message.clone()).filter(|text| !text.is_empty());
    let message = told.unwrap_or_else(|| text(report, "a removal waits for something"));
    let approval =
        waits.is_some_and(|waits| waits.reason.contains("Approv")) || report.reason.contains("Approv");
    if approval {
        broken(Hop::Pruned, Cause::AwaitsApproval, message, "approve the prune, or submit what should stay")
    } else {
        broken(
            Hop::Pruned,
            Cause::Blocked,
            message,
            "remove what blocks: a finalizer, or what is inside a namespace",
        )
    }
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

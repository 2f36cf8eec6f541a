//! Why an agent does not get the newest version: its rollout, or that to agents that the stack has gained, has not reached the
//! agent.

use brokkr_api::SequenceId;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Rollout, RolloutState};
use brokkr_api::suspensions::Suspended;
use brokkr_api::why::{Broken, Cause, Hop};
use brokkr_api::windows::{Opening, Schedule, WindowRule};

use super::Case;
use super::advice::advised;
use crate::domain::envelope::DesiredObject;
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::release::{Release, was_released_to};
use crate::domain::targeting::{reaches, targeted_before};
use crate::domain::windows::WindowFacts;

/// Returns the version that the agent keeps although it is withdrawn, because it has begun it.
pub(super) fn kept(case: &Case<'_>, gets: SequenceId) -> Option<SequenceId> {
    let reported = case.report.map(|report| report.sequence_id).filter(|reported| *reported > gets)?;
    let is_staged = case.stack.releases().iter().any(|release| release.object.sequence_id == reported);
    (is_staged && was_released_to(case.agent, case.stack, reported)).then_some(reported)
}

/// Returns the release that the agent waits for, unless it has that version, and the sequence id of its rollout.
fn awaited_release<'a>(agent: &AgentFacts, stack: &'a StackFacts) -> Option<(&'a Release, SequenceId)> {
    let widening = stack.widening().filter(|widening| !widening.reaches(agent, stack));
    let of_base = widening.map(|widening| (&widening.release, widening.key));
    let of_version = stack.releases().last().map(|release| (release, release.object.sequence_id));
    of_base.filter(|(release, _)| release.open).or(of_version).or(of_base)
}

/// Returns the sequence id of the rollout that decides when the agent gets another version, if there is one.
#[must_use]
pub fn awaited_rollout(agent: &AgentFacts, stack: &StackFacts) -> Option<SequenceId> {
    awaited_release(agent, stack).map(|(_, rollout)| rollout)
}

/// Explains why the agent, which has this version, does not get the newest one.
pub(super) fn held_back(case: &Case<'_>, has: Option<SequenceId>) -> Option<Broken> {
    let (release, key) = awaited_release(case.agent, case.stack)?;
    let version = release.object.sequence_id;
    if has.is_some_and(|has| has >= version) || !reaches(case.agent, case.stack) {
        return None;
    }
    // There is nothing to delete, or nothing left.
    if release.object.is_deletion_marker && !case.agent.holds(case.stack.id) {
        return None;
    }
    let rollout = case.rollout.filter(|rollout| rollout.sequence_id == key);
    let state = rollout
        .map_or(if release.open { RolloutState::Running } else { RolloutState::Stopped }, |rollout| {
            rollout.state
        });
    let progress = rollout.map(progress).unwrap_or_default();
    let schedule = case.stack.windows.schedule(case.agent, &case.stack.project);
    let is_urgent =
        release.object.is_urgent && targeted_before(case.agent, case.stack, release.object.published_at);
    let schedule = schedule.filter(|_| release.open && !is_urgent);
    let closed = schedule.and_then(|schedule| closed(case, &schedule));
    let waits =
        closed.map(|closed| (Cause::WindowClosed, format!("version {version} waits{closed}{progress}")));
    let suspended = case.stack.suspensions_on(case.agent).next().filter(|_| release.open);
    let waits = suspended
        .map(|suspended| {
            (Cause::Suspended, format!("version {version} waits{}{progress}", suspension(suspended)))
        })
        .or(waits);
    let (cause, message) = waits.unwrap_or_else(|| match state {
        RolloutState::Gated => {
            (Cause::GateClosed, format!("the rollout of version {version} waits for approvals{progress}"))
        }
        RolloutState::Paused => {
            (Cause::RolloutPaused, format!("the rollout of version {version} is paused{progress}"))
        }
        RolloutState::Running | RolloutState::Soaking => {
            (Cause::HeldBack, format!("version {version} is not released to this agent yet{progress}"))
        }
        _ => {
            let reason =
                rollout.and_then(|rollout| rollout.stop_reason.as_ref()).map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            (Cause::RolloutStopped, format!("the rollout of version {version} was stopped{reason}{progress}"))
        }
    });
    let has = has.map_or_else(String::new, |has| format!("; here {has} is in force"));
    Some(advised(case, Hop::Released, cause, format!("{message}{has}")))
}

/// Explains why an agent does not begin what it should do.
pub(super) fn not_begun(case: &Case<'_>, wanted: &DesiredObject) -> Option<Broken> {
    // Reports about a version that is to be removed are mostly from before the removal.
    let is_begun = case.report.is_some_and(|report| {
        use Transition::{Blocked, Failed, Removed};
        wanted.removal.is_none() || matches!(report.transition, Removed | Blocked | Failed)
    });
    let what = if wanted.removal.is_some() { "the removal" } else { "version" };
    if let Some(suspended) =
        case.stack.suspensions_on(case.agent).find(|one| one.object.is_none() && !is_begun)
    {
        let message = format!("{what} {} waits{}", wanted.sequence_id(), suspension(suspended));
        return Some(advised(case, Hop::Fetched, Cause::Suspended, message));
    }
    let schedule = wanted.schedule.as_ref().filter(|_| !is_begun)?;
    let message = format!("{what} {} waits{}", wanted.sequence_id(), closed(case, schedule)?);
    Some(advised(case, Hop::Fetched, Cause::WindowClosed, message))
}

fn suspension(suspended: &Suspended) -> String {
    match &suspended.object {
        Some(object) => format!(", because {object} is suspended here"),
        None => ", because the stack is suspended here".to_owned(),
    }
}

/// Returns a text such as ` for the maintenance window night, which opens at …`, if the agent may not begin the version now.
fn closed(case: &Case<'_>, schedule: &Schedule) -> Option<String> {
    let Case { agent, stack, seen, .. } = *case;
    let Opening::Shut { until } = schedule.at(seen.now) else { return None };
    let at = until.map_or_else(String::new, |until| format!("; the agent may begin at {until}"));
    let mut windows = stack.windows.of(agent, &stack.project);
    let frozen = windows.find_map(|window| match &window.rule {
        WindowRule::Freeze(freeze) if freeze.from <= seen.now && seen.now < freeze.until => {
            Some((&window.name, &freeze.reason))
        }
        _ => None,
    });
    let name =
        |window: &WindowFacts| matches!(window.rule, WindowRule::Weekly(_)).then(|| window.name.clone());
    Some(match frozen {
        Some((name, reason)) if reason.is_empty() => format!(" for the end of the freeze {name}{at}"),
        Some((name, reason)) => format!(" for the end of the freeze {name} ({reason}){at}"),
        None => {
            let name = stack.windows.of(agent, &stack.project).find_map(name).unwrap_or_default();
            format!(" for the maintenance window {name}{at}")
        }
    })
}

fn progress(rollout: &Rollout) -> String {
    let figures = &rollout.figures;
    format!(
        " (wave {} of {}, released to {} of {} agents, {} healthy, {} bad)",
        rollout.wave, rollout.waves, figures.released, figures.members, figures.healthy, figures.bad
    )
}

//! Why an agent does not get the newest version: its rollout has not reached the agent.

use brokkr_api::SequenceId;
use brokkr_api::rollouts::{Rollout, RolloutState};
use brokkr_api::why::{Broken, Cause, Hop};

use super::Case;
use super::advice::advised;
use crate::domain::release::was_released_to;
use crate::domain::targeting::reaches;

/// Returns the version that the agent keeps although it is withdrawn, because it has begun it.
pub(super) fn kept(case: &Case<'_>, gets: SequenceId) -> Option<SequenceId> {
    let reported = case.report.map(|report| report.sequence_id).filter(|reported| *reported > gets)?;
    let is_staged = case.stack.releases().iter().any(|release| release.object.sequence_id == reported);
    (is_staged && was_released_to(case.agent, case.stack, reported)).then_some(reported)
}

/// Returns the first version of the stack, if it is not released to the agent yet.
pub(super) fn awaited(case: &Case<'_>) -> Option<SequenceId> {
    let newest = case.stack.newest().filter(|_| reaches(case.agent, case.stack))?;
    (case.stack.base.is_none() && !newest.is_deletion_marker).then_some(newest.sequence_id)
}

/// Explains why the agent, which has this version, does not get the newest one.
pub(super) fn held_back(case: &Case<'_>, has: Option<SequenceId>) -> Option<Broken> {
    let release = case.stack.releases().last()?;
    let version = release.object.sequence_id;
    if has.is_some_and(|has| has >= version) || !reaches(case.agent, case.stack) {
        return None;
    }
    // There is nothing to delete, or nothing left.
    if release.object.is_deletion_marker && !case.agent.holds(case.stack.id) {
        return None;
    }
    let rollout = case.rollout.filter(|rollout| rollout.sequence_id == version);
    let state = rollout
        .map_or(if release.open { RolloutState::Running } else { RolloutState::Stopped }, |rollout| {
            rollout.state
        });
    let progress = rollout.map(progress).unwrap_or_default();
    let (cause, message) = match state {
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
    };
    let has = has.map_or_else(String::new, |has| format!("; here {has} is in force"));
    Some(advised(case, Hop::Released, cause, format!("{message}{has}")))
}

fn progress(rollout: &Rollout) -> String {
    let figures = &rollout.figures;
    format!(
        " (wave {} of {}, released to {} of {} agents, {} healthy, {} bad)",
        rollout.wave, rollout.waves, figures.released, figures.members, figures.healthy, figures.bad
    )
}

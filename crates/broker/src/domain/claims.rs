//! What an agent's claims count for. An agent holds, reads and reports only what was released to it; a claim alone
//! authorizes nothing.

use brokkr_api::SequenceId;
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::RefusalReason;
use jiff::{SignedDuration, Timestamp};

use super::facts::{AgentFacts, StackFacts};
use super::release::{last_released_to, released_to, was_released_to};
use super::targeting::reaches;

/// What a claim to hold a stack counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldClaim {
    /// The stack targets the agent now; this is the newest version that was released to it.
    Targeted(SequenceId),
    /// The stack targeted the agent when this was recorded.
    Recorded,
    /// Neither: it causes no removal, content or target until an admin decides.
    Unconfirmed,
}

/// Judges a claim. `recorded` says whether it is confirmed already. `after_restore` says that this is the first list of
/// the agent since the database was restored: then a record without a target may be a target that was lost, and must not
/// become a removal. A stack that is deleted stays deleted.
#[must_use]
pub fn hold_claim(
    agent: &AgentFacts,
    stack: Option<&StackFacts>,
    recorded: bool,
    after_restore: bool,
) -> HoldClaim {
    let targeted = stack.filter(|stack| agent.status == AgentStatus::Active && reaches(agent, stack));
    match (targeted, stack) {
        (Some(stack), _) => {
            let released = last_released_to(agent, stack);
            HoldClaim::Targeted(released.map_or(SequenceId(0), |object| object.sequence_id))
        }
        (None, Some(stack)) if recorded && after_restore && !stack.deleted => HoldClaim::Unconfirmed,
        (None, _) if recorded => HoldClaim::Recorded,
        _ => HoldClaim::Unconfirmed,
    }
}

/// Returns whether the agent may read this version because the stack targets it now: the version that it gets, and those
/// that were released to it before if it holds the stack.
#[must_use]
pub fn reads_as_target(agent: &AgentFacts, stack: &StackFacts, version: SequenceId) -> bool {
    let is_current = || released_to(agent, stack).is_some_and(|object| object.sequence_id == version);
    agent.status == AgentStatus::Active
        && reaches(agent, stack)
        && (is_current() || agent.holds(stack.id) && was_released_to(agent, stack, version))
}

/// Judges a report about this version of the stack. A stack that the agent only has to remove is named to it with its newest
/// version, so reports may name that one.
pub fn report(
    agent: Option<&AgentFacts>,
    stack: Option<&StackFacts>,
    version: SequenceId,
) -> Result<(), RefusalReason> {
    let (Some(agent), Some(stack)) = (agent, stack) else { return Err(RefusalReason::NotTargeted) };
    let is_target = reaches(agent, stack);
    if !agent.holds(stack.id) && !is_target {
        return Err(RefusalReason::NotTargeted);
    }
    let is_removed = || stack.newest().is_some_and(|newest| version <= newest.sequence_id) && !is_target;
    if was_released_to(agent, stack, version) || is_removed() {
        return Ok(());
    }
    Err(RefusalReason::NotReleased)
}

/// How far ahead of the broker's clock the time of a report may be.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// Returns the time to store for a report from the future: the clock of the agent is wrong, or the agent lies. Without
/// this, one such report would be the newest for ever. `rank` is the report's place in the order of its batch, which stays
/// the same. A time in the past does no harm.
#[must_use]
pub fn clamped(at: Timestamp, now: Timestamp, rank: usize) -> Option<Timestamp> {
    let rank = SignedDuration::from_micros(i64::try_from(rank).unwrap_or_default());
    (at > now + AHEAD).then(|| now + rank)
}

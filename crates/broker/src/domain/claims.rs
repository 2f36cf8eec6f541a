//! What an agent's claims count for. An agent holds, reads and reports only what was released to it; a claim alone
//! authorizes nothing.

use brokkr_api::SequenceId;
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::RefusalReason;
use jiff::{SignedDuration, Timestamp};

use super::facts::{AgentFacts, StackFacts};
use super::targeting::{reaches, released_to};

/// What a claim to hold a stack counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldClaim {
    /// The stack targets the agent now; versions up to this one are released to it.
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
        (Some(stack), _) => HoldClaim::Targeted(highest_released(agent, stack)),
        (None, Some(stack)) if recorded && after_restore && !stack.deleted => HoldClaim::Unconfirmed,
        (None, _) if recorded => HoldClaim::Recorded,
        _ => HoldClaim::Unconfirmed,
    }
}

/// Returns the newest version that is released to the agent, if the stack targets or targeted it.
#[must_use]
pub fn highest_released(agent: &AgentFacts, stack: &StackFacts) -> SequenceId {
    released_to(agent, stack).map_or(SequenceId(0), |object| object.sequence_id)
}

/// Returns whether the agent may read this version because the stack targets it now: the released version, and earlier
/// ones if it holds the stack.
#[must_use]
pub fn reads_as_target(agent: &AgentFacts, stack: &StackFacts, version: SequenceId) -> bool {
    let released = highest_released(agent, stack);
    agent.status == AgentStatus::Active
        && reaches(agent, stack)
        && (version == released || version < released && agent.holds(stack.id))
}

/// Judges a report about this version of the stack. A stack that the agent holds is named to it with its newest version
/// even if the agent only has to remove it, so reports may name that one.
pub fn report(
    agent: Option<&AgentFacts>,
    stack: Option<&StackFacts>,
    version: SequenceId,
) -> Result<(), RefusalReason> {
    let (Some(agent), Some(stack)) = (agent, stack) else { return Err(RefusalReason::NotTargeted) };
    if !agent.holds(stack.id) && !reaches(agent, stack) {
        return Err(RefusalReason::NotTargeted);
    }
    if version > highest_released(agent, stack) {
        return Err(RefusalReason::NotReleased);
    }
    Ok(())
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

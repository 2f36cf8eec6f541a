//! Does this stack reach this agent, why, since when, and with which object.

use brokkr_api::agents::Why;
use jiff::Timestamp;

use super::facts::{AgentFacts, ObjectFacts, StackFacts};

/// One reason, and since when it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub why: Why,
    pub since: Timestamp,
}

/// Every reason why the agent gets the stack. None for a deleted stack, and none outside the project's grants.
#[must_use]
pub fn reasons(agent: &AgentFacts, stack: &StackFacts) -> Vec<Reason> {
    if stack.deleted || !stack.grants.cover(agent) {
        return Vec::new();
    }
    let explicit = stack
        .targets
        .binary_search_by_key(&agent.id, |target| target.agent)
        .ok()
        .map(|at| Reason { why: Why::Explicit, since: stack.targets[at].since });
    let matching =
        stack.selectors.iter().filter(|target| agent.matches(&target.selector)).map(|target| Reason {
            why: Why::Selector { selector: target.selector.clone() },
            since: target.since.max(agent.labels_changed_at),
        });
    explicit.into_iter().chain(matching).collect()
}

/// Whether the stack reaches the agent at all; cheaper than naming every reason.
#[must_use]
pub fn reaches(agent: &AgentFacts, stack: &StackFacts) -> bool {
    !stack.deleted
        && (stack.targets.binary_search_by_key(&agent.id, |target| target.agent).is_ok()
            || stack.selectors.iter().any(|target| agent.matches(&target.selector)))
        && stack.grants.cover(agent)
}

/// The object of the stack that counts for this agent: its desired state.
///
/// Nobody else asks for "the newest of a stack". A rollout will hold the newest back from some agents,
/// and this is the one place where that has to be known.
#[must_use]
pub fn released_to<'a>(_agent: &AgentFacts, stack: &'a StackFacts) -> Option<&'a ObjectFacts> {
    stack.newest.as_ref()
}

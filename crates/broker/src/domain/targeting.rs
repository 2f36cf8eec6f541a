//! Whether a stack reaches an agent, why, and since when. Which version the agent gets is decided in `release`.

use brokkr_api::agents::Why;
use jiff::Timestamp;

use super::facts::{AgentFacts, StackFacts};

/// A reason, and since when it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub why: Why,
    pub since: Timestamp,
}

/// Returns every reason why the agent gets the stack; none if the stack is deleted, or if its project has no
/// grant for the agent.
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

/// Returns whether the stack has targeted the agent since before this time. If its labels have changed later, an agent that has the
/// stack counts as one that had it before.
#[must_use]
pub fn targeted_before(agent: &AgentFacts, stack: &StackFacts, time: Timestamp) -> bool {
    let explicit = stack.targets.binary_search_by_key(&agent.id, |target| target.agent);
    explicit.is_ok_and(|at| stack.targets[at].since <= time)
        || (agent.labels_changed_at <= time || agent.holds(stack.id))
            && stack.selectors.iter().any(|target| target.since <= time && agent.matches(&target.selector))
}

/// Returns whether the stack reaches the agent; cheaper than collecting every reason.
#[must_use]
pub fn reaches(agent: &AgentFacts, stack: &StackFacts) -> bool {
    !stack.deleted
        && (stack.targets.binary_search_by_key(&agent.id, |target| target.agent).is_ok()
            || stack.selectors.iter().any(|target| agent.matches(&target.selector)))
        && stack.grants.cover(agent)
}

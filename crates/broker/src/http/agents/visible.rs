//! Which agents a caller may see: those that are granted to its project. Others are as if they were not there.

use brokkr_api::AgentId;

use crate::access::Caller;
use crate::domain::grants::ProjectGrants;
use crate::index::Snapshot;

/// Whether the caller sees every agent of the installation, and what they get from any project.
pub fn sees_all(caller: &Caller) -> bool {
    matches!(caller, Caller::Token(token) if token.role.is_over_installation())
}

/// Whether the caller sees the agent. An agent that is called by itself was let in by the guard.
pub fn sees(snapshot: &Snapshot, caller: &Caller, agent: AgentId) -> bool {
    let Caller::Token(token) = caller else { return true };
    if sees_all(caller) {
        return true;
    }
    let grants = snapshot.project_grants(&token.project);
    *grants == ProjectGrants::Unlimited || snapshot.agent(agent).is_some_and(|agent| grants.cover(agent))
}

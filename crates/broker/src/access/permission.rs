//! What a route asks for. The table in `router.rs` puts one beside each route.

use std::fmt;

use brokkr_api::tokens::Role;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Anybody; the handler looks at what is in the request itself.
    Public,
    /// An API token whose role includes this one. Auditors may read whatever is open to tokens.
    Token(Role),
    /// The agent that the path names.
    Agent,
    /// The agent that the path names, or an API token whose role includes this one.
    AgentOr(Role),
    /// Any agent, whose right to the one thing the handler checks; or an API token whose role
    /// includes this one.
    AnyAgentOr(Role),
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("anybody"),
            Self::Token(role) => write!(f, "token with role {role}"),
            Self::Agent => f.write_str("the agent itself"),
            Self::AgentOr(role) => write!(f, "the agent itself, or a token with role {role}"),
            Self::AnyAgentOr(role) => write!(f, "an agent that it concerns, or a token with role {role}"),
        }
    }
}

//! What a route requires. The table in `router.rs` names a permission for each route.

use std::fmt;

use brokkr_api::tokens::Role;
use brokkr_api::{AgentId, ErrorCode};

use super::caller::{AgentCaller, Caller};
use crate::error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Anyone; the handler checks the request itself.
    Public,
    /// An API token that has this role, or a session of one. If the route only reads, an auditor's token is also
    /// enough, whatever the role.
    Token(Role),
    /// The agent that the path names.
    Agent,
    /// The agent that the path names, or an API token that has this role.
    AgentOr(Role),
    /// Any agent, if the handler finds that the object affects it; or an API token that has this role.
    AnyAgentOr(Role),
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("anyone"),
            Self::Token(role) => write!(f, "token with role {role}"),
            Self::Agent => f.write_str("the agent itself"),
            Self::AgentOr(role) => write!(f, "the agent itself, or a token with role {role}"),
            Self::AnyAgentOr(role) => write!(f, "an affected agent, or a token with role {role}"),
        }
    }
}

/// Checks the permission of a caller. Denies by default: only the cases listed here pass.
pub fn allow(
    permission: Permission,
    caller: &Caller,
    named: Option<&str>,
    reading: bool,
) -> Result<(), ApiError> {
    let role = |least: Role| match caller {
        Caller::Token(token) if token.role.includes(least) => Ok(()),
        Caller::Token(token) => Err(ApiError::new(
            ErrorCode::BRK1002,
            format!("this requires the role {least}; the token has {}", token.role),
        )),
        Caller::Agent(_) => Err(ApiError::new(ErrorCode::BRK1002, "agents are not allowed to do this")),
    };
    match (permission, caller) {
        (Permission::Public, _) | (Permission::AnyAgentOr(_), Caller::Agent(_)) => Ok(()),
        (Permission::Agent | Permission::AgentOr(_), Caller::Agent(agent)) => check_named(agent, named),
        (Permission::Agent, Caller::Token(_)) => {
            Err(ApiError::new(ErrorCode::BRK1002, "only the agent itself may do this"))
        }
        (Permission::Token(_), Caller::Token(token)) if reading && token.role == Role::Auditor => Ok(()),
        (Permission::Token(least) | Permission::AgentOr(least) | Permission::AnyAgentOr(least), _) => {
            role(least)
        }
    }
}

/// Checks that the path names the calling agent. Other agents get 404.
fn check_named(agent: &AgentCaller, named: Option<&str>) -> Result<(), ApiError> {
    let named = named.and_then(|text| text.parse::<AgentId>().ok());
    if named == Some(agent.id) { Ok(()) } else { Err(ApiError::not_found("agent")) }
}

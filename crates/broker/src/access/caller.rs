//! Who a request comes from, as the guard found out. Project and agent come from here, never from a body.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::tokens::WhoAmI;
use brokkr_api::{AgentId, ErrorCode};
use http::request::Parts;

use crate::http::error::ApiError;

#[derive(Clone, Debug)]
pub enum Caller {
    Token(Arc<WhoAmI>),
    Agent(AgentCaller),
}

#[derive(Clone, Debug)]
pub struct AgentCaller {
    pub id: AgentId,
    /// The agent's key when the assertion was verified; a long poll looks whether it still is.
    pub public_key: Arc<[u8]>,
    /// The key that signed: the same, or the one before while an agent changes its key.
    pub signed_with: Arc<[u8]>,
    /// When the assertion expires, or the old key that signed it: in seconds of the clock.
    pub until: i64,
}

impl Caller {
    /// The project that a token acts in. An agent has none: what it does goes by the project of the stack.
    pub fn project(&self) -> &str {
        match self {
            Self::Token(token) => &token.project,
            Self::Agent(_) => DEFAULT_PROJECT,
        }
    }

    /// Names the caller in keys and logs.
    pub fn principal(&self) -> String {
        match self {
            Self::Token(token) => format!("token:{}", token.token_id),
            Self::Agent(agent) => format!("agent:{}", agent.id),
        }
    }

    /// Whether the values of Secrets may be shown. An agent gets only what is meant for it, and needs them.
    pub fn reads_secrets(&self) -> bool {
        match self {
            Self::Token(token) => token.role.reads_secrets(),
            Self::Agent(_) => true,
        }
    }

    /// The token, where a route is open to tokens only.
    pub fn token(&self) -> Result<&WhoAmI, ApiError> {
        match self {
            Self::Token(token) => Ok(token),
            Self::Agent(_) => Err(ApiError::new(ErrorCode::BRK1002, "this is for API tokens")),
        }
    }

    /// The agent, where a route is open to agents only.
    pub fn agent(&self) -> Result<&AgentCaller, ApiError> {
        match self {
            Self::Agent(agent) => Ok(agent),
            Self::Token(_) => Err(ApiError::new(ErrorCode::BRK1002, "this is for the agent itself")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // Only the guard puts a caller there: a route without one is denied.
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "nobody is known to call"))
    }
}

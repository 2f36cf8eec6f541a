//! The authenticated caller of a request. Project and agent are taken from here, never from a body.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::tokens::WhoAmI;
use brokkr_api::{AgentId, ErrorCode};
use http::request::Parts;

use crate::error::ApiError;

#[derive(Clone, Debug)]
pub enum Caller {
    Token(Arc<WhoAmI>),
    Agent(AgentCaller),
}

#[derive(Clone, Debug)]
pub struct AgentCaller {
    pub id: AgentId,
    /// The agent's current key at the time when the assertion was verified. As long as this is still the
    /// current key, a long poll does not have to look up `signed_with` again.
    pub public_key: Arc<[u8]>,
    /// The key that signed the assertion: `public_key`, or the previous one during a rotation.
    pub signed_with: Arc<[u8]>,
    /// When the assertion, or the old key that signed it, expires (Unix seconds).
    pub until: i64,
}

impl Caller {
    /// Returns the project that a token acts in. An agent belongs to no project; `default` stands for it.
    pub fn project(&self) -> &str {
        match self {
            Self::Token(token) => &token.project,
            Self::Agent(_) => DEFAULT_PROJECT,
        }
    }

    /// Returns the name of the caller in idempotency keys, in the audit log and in the broker's own logs.
    pub fn principal(&self) -> String {
        match self {
            Self::Token(token) => format!("token:{}", token.token_id),
            Self::Agent(agent) => format!("agent:{}", agent.id),
        }
    }

    /// Returns whether values of Secrets may be shown. An agent only gets its own objects, and needs the values.
    pub fn reads_secrets(&self) -> bool {
        match self {
            Self::Token(token) => token.role.reads_secrets(),
            Self::Agent(_) => true,
        }
    }

    /// Returns the token, for routes that are open to tokens only.
    pub fn token(&self) -> Result<&WhoAmI, ApiError> {
        match self {
            Self::Token(token) => Ok(token),
            Self::Agent(_) => Err(ApiError::new(ErrorCode::BRK1002, "only API tokens may do this")),
        }
    }

    /// Returns the agent, for routes that are open to agents only.
    pub fn agent(&self) -> Result<&AgentCaller, ApiError> {
        match self {
            Self::Agent(agent) => Ok(agent),
            Self::Token(_) => Err(ApiError::new(ErrorCode::BRK1002, "only the agent itself may do this")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // Only the guard inserts a caller: a route without a guard is denied.
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| ApiError::new(ErrorCode::BRK1001, "request is not authenticated"))
    }
}

//! Credentials.

use brokkr_api::{AgentId, InstallationId};
use secrecy::SecretString;

use crate::key::AgentKey;

/// How requests are authenticated. Its `Debug` shows no secret.
#[derive(Clone, Debug)]
pub enum Credential {
    /// For registration, which has a join token in its body.
    None,
    /// An API token.
    Token(SecretString),
    /// An agent: each request has an assertion signed with its key.
    Agent(AgentIdentity),
}

/// A registered agent.
#[derive(Clone, Debug)]
pub struct AgentIdentity {
    pub agent_id: AgentId,
    /// The audience of the assertions; responses of other installations are rejected.
    pub installation_id: InstallationId,
    pub key: AgentKey,
}

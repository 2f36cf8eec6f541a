//! Who is calling.

use brokkr_api::{AgentId, InstallationId};
use secrecy::SecretString;

use crate::key::AgentKey;

/// How requests are authenticated. Its `Debug` shows no secret.
#[derive(Clone, Debug)]
pub enum Credential {
    /// For registering, which brings a join token in its body.
    None,
    /// People and machines: an API token.
    Token(SecretString),
    /// An agent: each request carries an assertion that its key signed.
    Agent(AgentIdentity),
}

/// An agent that has registered.
#[derive(Clone, Debug)]
pub struct AgentIdentity {
    pub agent_id: AgentId,
    /// The audience of the assertions, and the only installation whose answers count.
    pub installation_id: InstallationId,
    pub key: AgentKey,
}

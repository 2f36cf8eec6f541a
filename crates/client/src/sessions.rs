//! An agent's session, and the set of stacks that it holds.

use brokkr_api::agents::{Holds, OpenSession, OpenedSession};
use brokkr_api::protocol::{Session, header};
use brokkr_api::{AgentId, PositionToken};
use http::Method;

use crate::{Client, Result};

impl Client {
    pub async fn open_session(&self, agent: AgentId, session: &OpenSession) -> Result<OpenedSession> {
        let path = ["agents", &agent.to_string(), "session"];
        self.send(self.write(Method::POST, &path).json(session)?).await?.json()
    }

    /// Sends the complete set of stacks that the agent holds. The set is durable when this returns; responses
    /// at or after the returned position reflect it.
    pub async fn put_holds(&self, agent: AgentId, session: Session, holds: &Holds) -> Result<PositionToken> {
        let path = ["agents", &agent.to_string(), "holds"];
        let call = self.write(Method::PUT, &path).brokkr_header(header::SESSION, session).json(holds)?;
        let seen = self.written().unwrap_or_default().position;
        self.send(call).await?.demand_position(seen)
    }
}

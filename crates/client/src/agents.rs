//! Agents.

use brokkr_api::agents::{
    AbandonAgent, Agent, AgentPatch, AgentStatus, RegisterAgent, RegisteredAgent, RejoinAgent, RotateKey,
    RotatedKey, Target,
};
use brokkr_api::page::Page;
use brokkr_api::tokens::JoinToken;
use brokkr_api::why::Presence;
use brokkr_api::{AgentId, Selector};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::exchange::expecting;
use crate::page::{PageQuery, counted};

/// Selects agents. An empty field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentQuery {
    /// Text in their names.
    pub name: Option<String>,
    /// A selector over their labels.
    pub selector: Option<Selector>,
    pub status: Option<AgentStatus>,
    pub presence: Option<Presence>,
}

impl AgentQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        [
            self.name.clone().map(|name| ("name", name)),
            self.selector.as_ref().map(|selector| ("selector", selector.to_string())),
            self.status.map(|status| ("status", status.to_string())),
            self.presence.map(|presence| ("presence", presence.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Client {
    /// Registers an agent with a join token and a public key. Can be repeated with the same token and key until the token
    /// expires.
    pub async fn register_agent(&self, registration: &RegisterAgent) -> Result<RegisteredAgent, ClientError> {
        self.send(self.write(Method::POST, &["agents", "register"]).json(registration)?).await?.json()
    }

    /// Registers a new key of this agent. Store the key before, and sign with it after the response. Can be repeated with the
    /// same key.
    pub async fn rotate_key(&self, agent: AgentId, key: &RotateKey) -> Result<RotatedKey, ClientError> {
        let path = ["agents", &agent.to_string(), "keys"];
        self.send(self.write(Method::POST, &path).json(key)?).await?.json()
    }

    /// Requests a key rotation of an agent, by name or id. The agent does it with its next poll.
    pub async fn ask_for_key(&self, agent: &str) -> Result<Agent, ClientError> {
        self.send(self.write(Method::POST, &["agents", agent, "rotation"])).await?.json()
    }

    /// Revokes all keys of an agent, by name or id.
    pub async fn revoke_agent_keys(&self, agent: &str) -> Result<Agent, ClientError> {
        self.send(self.write(Method::DELETE, &["agents", agent, "keys"])).await?.json()
    }

    /// Creates a join token with which an existing agent, by name or id, gets a new key.
    pub async fn rejoin_agent(&self, agent: &str, wanted: &RejoinAgent) -> Result<JoinToken, ClientError> {
        self.send(self.write(Method::POST, &["agents", agent, "join-tokens"]).json(wanted)?).await?.json()
    }

    /// Retires the agent: nothing targets it any more, so that it removes its stacks.
    pub async fn retire_agent(&self, agent: &str) -> Result<Agent, ClientError> {
        self.send(self.write(Method::POST, &["agents", agent, "retirement"])).await?.json()
    }

    /// Abandons the agent: its keys are revoked, and deletions do not wait for it.
    pub async fn abandon_agent(&self, agent: &str, reason: &str) -> Result<Agent, ClientError> {
        let wanted = AbandonAgent { reason: reason.to_owned() };
        self.send(self.write(Method::POST, &["agents", agent, "abandonment"]).json(&wanted)?).await?.json()
    }

    pub async fn agents(&self, page: &PageQuery) -> Result<Page<Agent>, ClientError> {
        self.send(self.read(&["agents"]).query(&page.pairs())).await?.json()
    }

    pub async fn agents_all(&self) -> Result<Vec<Agent>, ClientError> {
        self.read_on(|page| async move { self.agents(&page).await }).await
    }

    /// Reads one page of matching agents by name, and their number.
    pub async fn agents_where_counted(
        &self,
        query: &AgentQuery,
        page: &PageQuery,
    ) -> Result<Page<Agent>, ClientError> {
        let counted = vec![("count", "true".to_owned())];
        let pairs = [query.pairs(), page.pairs(), counted].concat();
        self.send(self.read(&["agents"]).query(&pairs)).await?.json()
    }

    /// Reads the first matching agents by name.
    pub async fn agents_where(&self, query: &AgentQuery, most: usize) -> Result<Page<Agent>, ClientError> {
        self.read_up_to(most, |page| async move {
            let pairs = [query.pairs(), page.pairs()].concat();
            self.send(self.read(&["agents"]).query(&pairs)).await?.json()
        })
        .await
    }

    /// Reads the number of matching agents.
    pub async fn agents_counted(&self, query: &AgentQuery) -> Result<Option<u64>, ClientError> {
        let pairs = [query.pairs(), counted()].concat();
        let page: Page<Agent> = self.send(self.read(&["agents"]).query(&pairs)).await?.json()?;
        Ok(page.total)
    }

    /// By name or id.
    pub async fn agent(&self, agent: &str) -> Result<Agent, ClientError> {
        self.send(self.read(&["agents", agent])).await?.json()
    }

    /// By name or id.
    pub async fn patch_agent(&self, agent: &str, patch: &AgentPatch) -> Result<Agent, ClientError> {
        self.patch_agent_expecting(agent, patch, None).await
    }

    /// Like [`Client::patch_agent`], and confirms how many stacks the agent loses.
    pub async fn patch_agent_expecting(
        &self,
        agent: &str,
        patch: &AgentPatch,
        expect: Option<u64>,
    ) -> Result<Agent, ClientError> {
        let request = self.write(Method::PATCH, &["agents", agent]).query(&expecting(expect));
        self.send(request.json(patch)?).await?.json()
    }

    /// Lists the stacks that target an agent, by name or id.
    pub async fn targets(&self, agent: &str, page: &PageQuery) -> Result<Page<Target>, ClientError> {
        self.send(self.read(&["agents", agent, "targets"]).query(&page.pairs())).await?.json()
    }

    pub async fn targets_all(&self, agent: &str) -> Result<Vec<Target>, ClientError> {
        self.read_on(|page| async move { self.targets(agent, &page).await }).await
    }

    /// Lists the stacks that target this agent.
    pub async fn own_targets(&self, agent: AgentId) -> Result<Vec<Target>, ClientError> {
        self.targets_all(&agent.to_string()).await
    }
}

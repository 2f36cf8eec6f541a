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

use crate::page::{Pair, expecting, given};
use crate::{Client, PageQuery, Result};

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
    fn pairs(&self) -> Vec<Pair> {
        given([
            self.name.clone().map(|name| ("name", name)),
            self.selector.as_ref().map(|selector| ("selector", selector.to_string())),
            self.status.map(|status| ("status", status.to_string())),
            self.presence.map(|presence| ("presence", presence.to_string())),
        ])
    }
}

impl Client {
    /// Registers an agent: see [`crate::AgentKey::registration`]. Can be repeated with the same token and key until the token
    /// expires.
    pub async fn register_agent(&self, registration: &RegisterAgent) -> Result<RegisteredAgent> {
        self.send(self.write(Method::POST, &["agents", "register"]).json(registration)?).await?.json()
    }

    /// Registers a new key of this agent: see [`crate::AgentIdentity::key_change`]. Store the key before, and sign with it after the response. Can be repeated with the
    /// same key.
    pub async fn rotate_key(&self, agent: AgentId, key: &RotateKey) -> Result<RotatedKey> {
        let path = ["agents", &agent.to_string(), "keys"];
        self.send(self.write(Method::POST, &path).json(key)?).await?.json()
    }

    /// Requests a key rotation of an agent, by name or id. The agent does it with its next poll.
    pub async fn ask_for_key(&self, agent: &str) -> Result<Agent> {
        self.send(self.write(Method::POST, &["agents", agent, "rotation"])).await?.json()
    }

    /// Revokes all keys of an agent, by name or id.
    pub async fn revoke_agent_keys(&self, agent: &str) -> Result<Agent> {
        self.send(self.write(Method::DELETE, &["agents", agent, "keys"])).await?.json()
    }

    /// Creates a join token with which an existing agent, by name or id, gets a new key.
    pub async fn rejoin_agent(&self, agent: &str, wanted: &RejoinAgent) -> Result<JoinToken> {
        self.send(self.write(Method::POST, &["agents", agent, "join-tokens"]).json(wanted)?).await?.json()
    }

    /// Retires the agent: nothing targets it any more, so that it removes its stacks.
    pub async fn retire_agent(&self, agent: &str) -> Result<Agent> {
        self.send(self.write(Method::POST, &["agents", agent, "retirement"])).await?.json()
    }

    /// Abandons the agent: its keys are revoked, and deletions do not wait for it.
    pub async fn abandon_agent(&self, agent: &str, reason: &str) -> Result<Agent> {
        let wanted = AbandonAgent { reason: reason.to_owned() };
        self.send(self.write(Method::POST, &["agents", agent, "abandonment"]).json(&wanted)?).await?.json()
    }

    /// Deletes an agent that was retired or abandoned, by name or id.
    pub async fn delete_agent(&self, agent: &str) -> Result<()> {
        self.send(self.write(Method::DELETE, &["agents", agent])).await.map(|_| ())
    }

    pub async fn agents(&self, page: &PageQuery) -> Result<Page<Agent>> {
        self.page(&["agents"], &[], page).await
    }

    pub async fn agents_all(&self) -> Result<Vec<Agent>> {
        self.all(&["agents"], &[]).await
    }

    /// Reads one page of the matching agents, ordered by name, and how many match.
    pub async fn agents_where_counted(&self, query: &AgentQuery, page: &PageQuery) -> Result<Page<Agent>> {
        let pairs = [query.pairs(), vec![("count", "true".to_owned())]].concat();
        self.page(&["agents"], &pairs, page).await
    }

    /// Reads the first matching agents, ordered by name.
    pub async fn agents_where(&self, query: &AgentQuery, most: usize) -> Result<Page<Agent>> {
        self.up_to(most, &["agents"], &query.pairs()).await
    }

    /// Reads the number of matching agents.
    pub async fn agents_counted(&self, query: &AgentQuery) -> Result<Option<u64>> {
        self.total(&["agents"], &query.pairs()).await
    }

    /// By name or id.
    pub async fn agent(&self, agent: &str) -> Result<Agent> {
        self.send(self.read(&["agents", agent])).await?.json()
    }

    /// By name or id.
    pub async fn patch_agent(&self, agent: &str, patch: &AgentPatch) -> Result<Agent> {
        self.patch_agent_expecting(agent, patch, None).await
    }

    /// Like [`Client::patch_agent`], and confirms how many stacks the agent loses.
    pub async fn patch_agent_expecting(
        &self,
        agent: &str,
        patch: &AgentPatch,
        expect: Option<u64>,
    ) -> Result<Agent> {
        let request = self.write(Method::PATCH, &["agents", agent]).query(&expecting(expect));
        self.send(request.json(patch)?).await?.json()
    }

    /// Lists the stacks that target an agent, by name or id.
    pub async fn targets_all(&self, agent: &str) -> Result<Vec<Target>> {
        self.all(&["agents", agent, "targets"], &[]).await
    }
}

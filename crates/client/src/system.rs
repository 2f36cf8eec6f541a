//! The installation, and what a restore left to settle: asked by people, helped by agents.

use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_api::protocol::YAML_MEDIA_TYPE;
use brokkr_api::system::{Settled, Settlement, System, UnsettledStack, WantedContent, WantedContents};
use brokkr_api::{AgentId, StackId};
use bytes::Bytes;
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    pub async fn system(&self) -> Result<System, ClientError> {
        self.send(self.read(&["system"])).await?.json()
    }

    /// Stacks on which agents are ahead of the broker's database.
    pub async fn system_ahead_all(&self) -> Result<Vec<UnsettledStack>, ClientError> {
        self.read_on(|page| async move { self.unsettled("ahead", &page).await }).await
    }

    /// Stacks that agents hold and the broker's database does not know.
    pub async fn system_unknown_all(&self) -> Result<Vec<UnsettledStack>, ClientError> {
        self.read_on(|page| async move { self.unsettled("unknown", &page).await }).await
    }

    async fn unsettled(&self, list: &str, page: &PageQuery) -> Result<Page<UnsettledStack>, ClientError> {
        self.send(self.read(&["system", list]).query(&page.pairs())).await?.json()
    }

    /// By id, or by name in the caller's project.
    pub async fn settle(&self, stack: &str, settlement: &Settlement) -> Result<Settled, ClientError> {
        let path = ["system", "stacks", stack, "settlement"];
        self.send(self.write(Method::POST, &path).json(settlement)?).await?.json()
    }

    /// Contents that the broker lost and this agent keeps.
    pub async fn wanted_contents(&self, agent: AgentId) -> Result<Vec<WantedContent>, ClientError> {
        let path = ["agents", &agent.to_string(), "wanted-contents"];
        let wanted: WantedContents = self.send(self.read(&path)).await?.json()?;
        Ok(wanted.items)
    }

    /// Hands over exactly the bytes that the agent once got.
    pub async fn hand_over(
        &self,
        agent: AgentId,
        stack: StackId,
        content: impl Into<Bytes>,
    ) -> Result<DeploymentObject, ClientError> {
        let path = ["agents", &agent.to_string(), "wanted-contents", &stack.to_string()];
        let call = self.write(Method::PUT, &path).bytes(YAML_MEDIA_TYPE, content.into());
        self.send(call).await?.json()
    }

    /// Says why a content cannot be handed over.
    pub async fn hand_over_not(&self, agent: AgentId, stack: StackId, why: &str) -> Result<(), ClientError> {
        let path = ["agents", &agent.to_string(), "wanted-contents", &stack.to_string()];
        let call = self.write(Method::DELETE, &path).query(&[("why", why.to_owned())]);
        self.send(call).await.map(|_| ())
    }
}

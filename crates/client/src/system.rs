//! The installation, and stacks that need settling after a restore.

use brokkr_api::page::Page;
use brokkr_api::system::{Holder, Settled, Settlement, System, UnsettledStack};
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

    /// Lists every agent that holds an unsettled stack, given by id or by name in the caller's project.
    pub async fn system_holders_all(&self, stack: &str) -> Result<Vec<Holder>, ClientError> {
        self.read_on(|page| async move {
            let path = ["system", "stacks", stack, "holders"];
            self.send(self.read(&path).query(&page.pairs())).await?.json()
        })
        .await
    }

    /// Settles a stack, given by id or by name in the caller's project.
    pub async fn settle(&self, stack: &str, settlement: &Settlement) -> Result<Settled, ClientError> {
        let path = ["system", "stacks", stack, "settlement"];
        self.send(self.write(Method::POST, &path).json(settlement)?).await?.json()
    }
}

//! Events: what happened, newest first.

use brokkr_api::events::Event;
use brokkr_api::page::Page;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

/// Which events. Names or ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    pub stack: Option<String>,
    pub agent: Option<String>,
}

impl Client {
    pub async fn events(&self, query: &EventQuery, page: &PageQuery) -> Result<Page<Event>, ClientError> {
        let stack = query.stack.clone().map(|stack| ("stack", stack));
        let agent = query.agent.clone().map(|agent| ("agent", agent));
        let pairs: Vec<_> = stack.into_iter().chain(agent).chain(page.pairs()).collect();
        self.send(self.read(&["events"]).query(&pairs)).await?.json()
    }

    pub async fn events_all(&self, query: &EventQuery) -> Result<Vec<Event>, ClientError> {
        self.read_on(|page| async move { self.events(query, &page).await }).await
    }
}

//! Events, newest first.

use brokkr_api::SequenceId;
use brokkr_api::events::Event;
use brokkr_api::page::Page;
use brokkr_api::report::Transition;
use jiff::Timestamp;

use crate::page::given;
use crate::{Client, PageQuery, Result};

/// Selects events. An empty field does not restrict. Streams use only stack and agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// By name or id.
    pub stack: Option<String>,
    /// By name or id.
    pub agent: Option<String>,
    pub sequence_id: Option<SequenceId>,
    pub transition: Option<Transition>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Client {
    pub async fn events(&self, query: &EventQuery, page: &PageQuery) -> Result<Page<Event>> {
        let pairs = given([
            query.stack.clone().map(|stack| ("stack", stack)),
            query.agent.clone().map(|agent| ("agent", agent)),
            query.sequence_id.map(|sequence| ("sequence_id", sequence.to_string())),
            query.transition.as_ref().map(|transition| ("transition", transition.to_string())),
            query.since.map(|since| ("since", since.to_string())),
            query.until.map(|until| ("until", until.to_string())),
        ]);
        self.page(&["events"], &pairs, page).await
    }
}

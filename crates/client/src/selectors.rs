//! Previews of selectors.

use brokkr_api::Selector;
use brokkr_api::selector::SelectorPreview;

use crate::page::given;
use crate::{Client, PageQuery, Result};

impl Client {
    /// Lists the agents that a selector matches. With a stack, given by name or id, also counts the agents
    /// that the stack would gain, keep and lose if this became its only selector.
    pub async fn preview_selector(
        &self,
        selector: &Selector,
        stack: Option<&str>,
        page: &PageQuery,
    ) -> Result<SelectorPreview> {
        let stack = stack.map(|stack| ("stack", stack.to_owned()));
        let pairs = given([Some(("selector", selector.to_string())), stack]);
        let call = self.read(&["selectors", "preview"]).query(&pairs).query(&page.pairs());
        self.send(call).await?.json()
    }
}

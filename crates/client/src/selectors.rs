//! Previews of selectors.

use brokkr_api::Selector;
use brokkr_api::selector::SelectorPreview;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    /// With a stack, by name or id, also what it would gain, keep and lose if this became its one selector.
    pub async fn preview_selector(
        &self,
        selector: &Selector,
        stack: Option<&str>,
        page: &PageQuery,
    ) -> Result<SelectorPreview, ClientError> {
        let stack = stack.map(|stack| ("stack", stack.to_owned()));
        let pairs = page.with([Some(("selector", selector.to_string())), stack]);
        self.send(self.read(&["selectors", "preview"]).query(&pairs)).await?.json()
    }
}

//! Previews of selectors.

use brokkr_api::Selector;
use brokkr_api::selector::SelectorPreview;

use crate::page::given;
use crate::{Client, PageQuery, Result};

impl Client {
    /// With a stack, by name or id, also what it would gain, keep and lose if this became its one selector.
    pub async fn preview_selector(
        &self,
        selector: &Selector,
        stack: Option<&str>,
        page: &PageQuery,
    ) -> Result<SelectorPreview> {
        let stack = stack.map(|stack| ("stack", stack.to_owned()));
        let asked = given([Some(("selector", selector.to_string())), stack]);
        let call = self.read(&["selectors", "preview"]).query(&asked).query(&page.pairs());
        self.send(call).await?.json()
    }
}

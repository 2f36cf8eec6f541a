//! Pages of lists.

use brokkr_api::page::{LARGEST_PAGE, Page};

use crate::builder::Client;
use crate::error::ClientError;
use crate::response::InvalidResponse;

/// No limit.
pub const ALL: usize = usize::MAX;

/// Selects a part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuery {
    /// The size of the page; the broker's default if not given.
    pub limit: Option<u32>,
    /// The `next` of the previous page.
    pub after: Option<String>,
}

impl PageQuery {
    /// Selects the first page in the largest size.
    #[must_use]
    pub fn largest() -> Self {
        Self { limit: Some(LARGEST_PAGE), after: None }
    }

    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let limit = self.limit.map(|limit| ("limit", limit.to_string()));
        let after = self.after.clone().map(|after| ("after", after));
        limit.into_iter().chain(after).collect()
    }

    /// Adds the page to the pairs of a query.
    pub(crate) fn with<const N: usize>(
        &self,
        asked: [Option<(&'static str, String)>; N],
    ) -> Vec<(&'static str, String)> {
        asked.into_iter().flatten().chain(self.pairs()).collect()
    }
}

/// Selects a minimal page, for requests that only need the total.
pub(crate) fn counted() -> Vec<(&'static str, String)> {
    vec![("count", "true".to_owned()), ("limit", "1".to_owned())]
}

impl Client {
    /// Reads all pages.
    pub(crate) async fn read_on<T, Reading>(
        &self,
        read: impl Fn(PageQuery) -> Reading,
    ) -> Result<Vec<T>, ClientError>
    where
        Reading: Future<Output = Result<Page<T>, ClientError>>,
    {
        self.read_up_to(ALL, read).await.map(|page| page.items)
    }

    /// Reads pages until there are `most` items, or to the end; then there is no `next`.
    pub(crate) async fn read_up_to<T, Reading>(
        &self,
        most: usize,
        read: impl Fn(PageQuery) -> Reading,
    ) -> Result<Page<T>, ClientError>
    where
        Reading: Future<Output = Result<Page<T>, ClientError>>,
    {
        let mut query = PageQuery::largest();
        let mut items = Vec::new();
        loop {
            let left = u32::try_from(most.saturating_sub(items.len())).unwrap_or(LARGEST_PAGE);
            query.limit = Some(left.min(LARGEST_PAGE));
            let page = read(query.clone()).await?;
            items.extend(page.items);
            match page.next {
                // A broker that names the same place again would be asked for ever.
                next if next.is_some() && next == query.after => {
                    return Err(InvalidResponse::EndlessPages.at(self.base()));
                }
                next if next.is_none() || items.len() >= most => {
                    return Ok(Page { items, next, total: None });
                }
                next => query.after = next,
            }
        }
    }
}

//! Pages of lists.

use brokkr_api::page::{LARGEST_PAGE, Page};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::response::InvalidResponse;
use crate::{Client, Result};

/// No limit.
pub const ALL: usize = usize::MAX;

/// Selects a part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuery {
    /// The size of the page; the broker's default if absent.
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

    pub(crate) fn pairs(&self) -> Vec<Pair> {
        let limit = self.limit.map(|limit| ("limit", limit.to_string()));
        given([limit, self.after.clone().map(|after| ("after", after))])
    }
}

/// A parameter of a query.
pub(crate) type Pair = (&'static str, String);

/// Returns the parameters that are not `None`.
pub(crate) fn given<const N: usize>(pairs: [Option<Pair>; N]) -> Vec<Pair> {
    pairs.into_iter().flatten().collect()
}

/// Returns the parameter `expect`, if there is one.
pub(crate) fn expecting(expect: Option<u64>) -> Vec<Pair> {
    given([expect.map(|number| ("expect", number.to_string()))])
}

impl Client {
    /// Reads one page of the list at `path`.
    pub(crate) async fn page<T>(&self, path: &[&str], pairs: &[Pair], page: &PageQuery) -> Result<Page<T>>
    where
        T: DeserializeOwned,
    {
        self.send(self.read(path).query(pairs).query(&page.pairs())).await?.json()
    }

    /// Reads the number of items of the list at `path`, with a page that is as small as possible.
    pub(crate) async fn total(&self, path: &[&str], pairs: &[Pair]) -> Result<Option<u64>> {
        let counted = self.read(path).query(pairs).query(&[("count", "true".to_owned())]);
        let page: Page<IgnoredAny> = self.send(counted.query(&[("limit", "1".to_owned())])).await?.json()?;
        Ok(page.total)
    }

    /// Reads all pages of the list at `path`.
    pub(crate) async fn all<T: DeserializeOwned>(&self, path: &[&str], pairs: &[Pair]) -> Result<Vec<T>> {
        self.up_to(ALL, path, pairs).await.map(|page| page.items)
    }

    /// Reads pages until there are `most` items or the list ends. At its end, the result has no `next`.
    pub(crate) async fn up_to<T>(&self, most: usize, path: &[&str], pairs: &[Pair]) -> Result<Page<T>>
    where
        T: DeserializeOwned,
    {
        let mut query = PageQuery::largest();
        let mut items = Vec::new();
        loop {
            let left = u32::try_from(most.saturating_sub(items.len())).unwrap_or(LARGEST_PAGE);
            query.limit = Some(left.min(LARGEST_PAGE));
            let page = self.page(path, pairs, &query).await?;
            items.extend(page.items);
            match page.next {
                // A broker that returns the same cursor again would cause an endless loop.
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

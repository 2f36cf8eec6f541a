//! `after` and `limit` of lists, and pages over filtered rows.

use axum::extract::{FromRequestParts, Query};
use brokkr_api::Selector;
use brokkr_api::page::{DEFAULT_PAGE, LARGEST_PAGE, Page};
use brokkr_api::selector::BadSelector;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::error::{ApiError, ApiResult};
use crate::store::StoreError;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

impl Paging {
    pub fn limit(&self) -> usize {
        limit(self.limit)
    }
}

/// Returns the page size, between 1 and the largest page.
pub fn limit(given: Option<u32>) -> usize {
    given.unwrap_or(DEFAULT_PAGE).clamp(1, LARGEST_PAGE) as usize
}

/// The number of rows that a filtered page reads at once, and the maximum number of such reads.
const CHUNK: usize = 1000;
const ROUNDS: usize = 20;

/// Reads rows in order, in chunks, until a page of matching items is full. The work is bounded: if few rows
/// match, the page is short or even empty, with a cursor to continue.
///
/// `read` returns rows after a cursor, `cursor_of` the cursor of a row, `to_item` the item of a row if it
/// matches. `unfiltered` says that all rows match: then only one row more than the page holds is read.
pub async fn filtered_page<Row, Item, Reading>(
    after: Option<String>,
    limit: usize,
    unfiltered: bool,
    read: impl Fn(Option<String>, usize) -> Reading,
    cursor_of: impl Fn(&Row) -> String,
    to_item: impl Fn(Row) -> Option<Item>,
) -> ApiResult<Page<Item>>
where
    Reading: Future<Output = Result<Vec<Row>, StoreError>>,
{
    let chunk = if unfiltered { limit + 1 } else { CHUNK };
    let mut after = after;
    let mut found: Vec<(String, Item)> = Vec::new();
    for _ in 0..ROUNDS {
        let rows = read(after.clone(), chunk).await?;
        let is_end = rows.len() < chunk;
        after = rows.last().map(&cursor_of).or(after);
        found.extend(rows.into_iter().filter_map(|row| {
            let at = cursor_of(&row);
            to_item(row).map(|item| (at, item))
        }));
        if found.len() > limit {
            return Ok(Page::cut(found, limit, |(at, _)| at.clone()).map(|(_, item)| item));
        }
        if is_end {
            after = None;
            break;
        }
    }
    let items = found.into_iter().map(|(_, item)| item).collect();
    Ok(Page { items, next: after, total: None })
}

/// Parses a selector of a query.
pub fn selector(given: Option<&str>) -> ApiResult<Option<Selector>> {
    let bad = |error: BadSelector| ApiError::invalid_request(format!("invalid `selector`: {error}"));
    given.map(str::parse).transpose().map_err(bad)
}

/// Parses a cursor.
pub fn cursor<T: std::str::FromStr>(after: Option<&str>) -> ApiResult<Option<T>> {
    after.map(|text| text.parse().map_err(|_| ApiError::invalid_request("invalid `after`"))).transpose()
}

/// Extracts the query of a request; an invalid one is refused with a problem document.
#[derive(Clone, Copy, Debug)]
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(given)| Self(given)).map_err(|error| ApiError::invalid_request(error.body_text()))
    }
}

//! `after` and `limit` of every list, and how a page is read of which not everything fits.

use axum::extract::{FromRequestParts, Query};
use brokkr_api::Selector;
use brokkr_api::page::{DEFAULT_PAGE, LARGEST_PAGE, Page};
use brokkr_api::selector::BadSelector;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::store::StoreError;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

impl Paging {
    pub fn limit(&self) -> usize {
        limit(self.limit)
    }
}

/// Between one and the largest page.
pub fn limit(asked: Option<u32>) -> usize {
    asked.unwrap_or(DEFAULT_PAGE).clamp(1, LARGEST_PAGE) as usize
}

/// Rows that are looked at together where not all of them fit, and how often one page does that.
const CHUNK: usize = 1000;
const ROUNDS: usize = 20;

/// A page of what fits, out of rows that are read in their order, some at a time. That is bounded work, however few
/// fit: after enough of it the page ends, short or even empty, and says where to read on.
///
/// `read` gives that many rows behind a place, `fit` the item of a row, if there is one for it. Where every row fits, no
/// more of them are read than the page holds.
pub async fn walk<Row, Item, Reading>(
    after: Option<String>,
    limit: usize,
    all_fit: bool,
    read: impl Fn(Option<String>, usize) -> Reading,
    place: impl Fn(&Row) -> String,
    fit: impl Fn(Row) -> Option<Item>,
) -> Result<Page<Item>, ApiError>
where
    Reading: Future<Output = Result<Vec<Row>, StoreError>>,
{
    let chunk = if all_fit { limit + 1 } else { CHUNK };
    let mut after = after;
    let mut found: Vec<(String, Item)> = Vec::new();
    for _ in 0..ROUNDS {
        let rows = read(after.clone(), chunk).await?;
        let is_end = rows.len() < chunk;
        after = rows.last().map(&place).or(after);
        found.extend(rows.into_iter().filter_map(|row| {
            let at = place(&row);
            fit(row).map(|item| (at, item))
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

/// A selector in a query.
pub fn selector(asked: Option<&str>) -> Result<Option<Selector>, ApiError> {
    let bad = |error: BadSelector| ApiError::unreadable(format!("`selector`: {error}"));
    asked.map(str::parse).transpose().map_err(bad)
}

/// A cursor that was handed out by us, read back.
pub fn cursor<T: std::str::FromStr>(after: Option<&str>) -> Result<Option<T>, ApiError> {
    after.map(|text| text.parse().map_err(|_| ApiError::unreadable("cannot read `after`"))).transpose()
}

/// The query of a request; a bad one is a problem document.
#[derive(Clone, Copy, Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|error| ApiError::unreadable(error.body_text()))
    }
}

//! `after` and `limit` of every list.

use axum::extract::{FromRequestParts, Query};
use brokkr_api::page::{DEFAULT_PAGE, LARGEST_PAGE};
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::error::ApiError;

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

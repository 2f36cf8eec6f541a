//! The description of this API, as it is served.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use crate::router;

static DOCUMENT: LazyLock<String> = LazyLock::new(router::openapi_json);

/// The OpenAPI document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "health", responses((status = 200, description = "This document.")))]
pub async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

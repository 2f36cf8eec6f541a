//! Serves the OpenAPI document.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

static DOCUMENT: LazyLock<String> = LazyLock::new(super::openapi_json);

/// The OpenAPI document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "health", responses((status = 200, description = "This document.")))]
pub async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

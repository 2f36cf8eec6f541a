//! Who one is.

use axum::Json;
use brokkr_api::tokens::WhoAmI;

use crate::error::ApiError;
use crate::access::Caller;

/// Who the token is, and what it may do.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "tokens", responses((status = 200, body = WhoAmI)))]
pub async fn whoami(caller: Caller) -> Result<Json<WhoAmI>, ApiError> {
    Ok(Json(caller.token()?.clone()))
}

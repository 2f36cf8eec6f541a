//! The caller's identity.

use axum::Json;
use brokkr_api::tokens::WhoAmI;

use super::error::ApiError;
use crate::access::Caller;

/// Show the identity and role of the token, and the broker's version.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "tokens", responses((status = 200, body = WhoAmI)))]
pub async fn whoami(caller: Caller) -> Result<Json<WhoAmI>, ApiError> {
    let server_version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(WhoAmI { server_version, ..caller.token()?.clone() }))
}

//! The newest link of a project's chain, to be kept elsewhere.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::audit::AuditHead;

use crate::access::Caller;
use crate::access::audit::ROOT;
use crate::state::Broker;
use crate::error::ApiError;
use crate::store::audit::audit_heads;

/// The head of the project's audit chain: number and hash of its newest link. Kept elsewhere, it proves later
/// that nothing before it was rewritten.
#[utoipa::path(get, path = "/api/v1/audit/head", tag = "audit", responses((status = 200, body = AuditHead)))]
pub async fn audit_head(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
) -> Result<Json<AuditHead>, ApiError> {
    let project = caller.project().to_owned();
    let head = audit_heads(&broker.pool, Some(std::slice::from_ref(&project))).await?.into_iter().next();
    Ok(Json(head.unwrap_or(AuditHead { project, number: 0, hash: ROOT })))
}

//! Walks a project's audit chain and names the first link that does not hold.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::audit::AuditVerdict;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::Asked;
use crate::tasks::audit_chain::verify;

/// Links of one request. `brokkr-broker audit verify` walks all.
const MOST: i64 = 10_000;

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct VerifyQuery {
    /// Where to walk on: `next` of the answer before.
    #[param(minimum = 0)]
    pub after: Option<i64>,
}

/// Walk the project's audit chain, 10,000 links at a time, and name the first one that does not hold.
#[utoipa::path(get, path = "/api/v1/audit/verify", tag = "audit", params(VerifyQuery),
    responses((status = 200, body = AuditVerdict)))]
pub async fn verify_audit(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<VerifyQuery>,
) -> Result<Json<AuditVerdict>, ApiError> {
    let after = query.after.unwrap_or_default().max(0);
    Ok(Json(verify(&broker.pool, caller.project(), after, MOST).await?))
}

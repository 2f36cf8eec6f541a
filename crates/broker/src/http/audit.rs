//! The audit log of a project and its hash chain.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, AuditVerdict};
use brokkr_api::page::Page;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::access::audit::ROOT;
use crate::error::ApiError;
use crate::http::paging::{Asked, cursor, limit};
use crate::state::Broker;
use crate::store::audit::{AuditFilter, audit_heads, audit_list};
use crate::tasks::audit_chain::verify;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// By whom: a principal (`token:ID`, `agent:ID`), or the name of a token.
    pub who: Option<String>,
    /// What: a route (`/api/v1/stacks/{stack}`), or its method and route.
    pub what: Option<String>,
    pub kind: Option<AuditKind>,
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Where to read on: `next` of the page before.
    pub after: Option<String>,
    /// How many, at most; 500 is the most.
    pub limit: Option<u32>,
}

/// List the audit log of the project, newest first: every change, refused attempts, and who read Secrets.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, body = Page<AuditEntry>)))]
pub async fn list_audit(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Asked(query): Asked<AuditQuery>,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let limit = limit(query.limit);
    let filter = AuditFilter {
        who: query.who,
        what: query.what,
        kind: query.kind,
        since: query.since,
        until: query.until,
        below: cursor(query.after.as_deref())?,
    };
    let entries = audit_list(&broker.pool, caller.project(), &filter, limit).await?;
    Ok(Json(Page::cut(entries, limit, |entry| entry.id.to_string())))
}

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

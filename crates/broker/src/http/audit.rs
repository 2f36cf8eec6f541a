//! The audit log of a project and its hash chain.

use axum::Json;
use axum::extract::State;
use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, AuditVerdict};
use brokkr_api::page::Page;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::domain::audit::ROOT;
use crate::error::ApiResult;
use crate::http::BrokerState;
use crate::http::paging::{QueryParams, cursor, limit};
use crate::store::audit::{AuditFilter, audit_heads, audit_list};
use crate::tasks::audit_chain::verify;

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only entries of this actor: a principal (`token:ID`, `agent:ID`), or the name of a token.
    pub who: Option<String>,
    /// Only entries of this route (`/api/v1/stacks/{stack}`), or of a method and route.
    pub what: Option<String>,
    pub kind: Option<AuditKind>,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
    /// Return items after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items; at most 500.
    pub limit: Option<u32>,
}

/// List the audit log of the project, newest first.
///
/// It contains every change, refused attempts, and reads of Secrets.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, body = Page<AuditEntry>)))]
pub async fn list_audit(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<AuditQuery>,
) -> ApiResult<Json<Page<AuditEntry>>> {
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

/// Get the head of the project's audit chain: number and hash of its newest link.
///
/// Stored elsewhere, it proves later that no earlier entry was rewritten.
#[utoipa::path(get, path = "/api/v1/audit/head", tag = "audit", responses((status = 200, body = AuditHead)))]
pub async fn audit_head(State(broker): BrokerState, caller: Caller) -> ApiResult<Json<AuditHead>> {
    let project = caller.project().to_owned();
    let head = audit_heads(&broker.pool, Some(std::slice::from_ref(&project))).await?.into_iter().next();
    Ok(Json(head.unwrap_or(AuditHead { project, number: 0, hash: ROOT })))
}

/// The number of links that one request verifies. `brokkr-broker audit verify` verifies all.
const MOST: i64 = 10_000;

#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct VerifyQuery {
    /// Verify the links after this one: `next` of the previous response.
    #[param(minimum = 0)]
    pub after: Option<i64>,
}

/// Verify the project's audit chain, 10,000 links at a time.
///
/// The response contains the first invalid entry.
#[utoipa::path(get, path = "/api/v1/audit/verify", tag = "audit", params(VerifyQuery),
    responses((status = 200, body = AuditVerdict)))]
pub async fn verify_audit(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(query): QueryParams<VerifyQuery>,
) -> ApiResult<Json<AuditVerdict>> {
    let after = query.after.unwrap_or_default().max(0);
    Ok(Json(verify(&broker.pool, caller.project(), after, MOST).await?))
}

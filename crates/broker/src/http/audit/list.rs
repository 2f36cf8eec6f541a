//! Lists the audit log of a project, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::audit::{AuditEntry, AuditKind};
use brokkr_api::page::Page;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, cursor, limit};
use crate::store::audit::{AuditFilter, audit_list};

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

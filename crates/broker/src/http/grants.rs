//! Grants: which agents a project may use, for which resources, and as which account. Only admins write them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::envelope::Grant;
use brokkr_api::grants::{ProjectGrant, PutGrant};
use brokkr_api::names::BadName;
use brokkr_api::page::Page;
use brokkr_api::{GrantId, Name};
use http::StatusCode;

use crate::domain::grants::{GrantFacts, ProjectGrants};
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::{Paging, QueryParams};
use crate::http::write::{self, ResultStorage};
use crate::store::grants::{
    grant_count_on_conn, grant_delete_on_conn, grant_fetch, grant_list, grant_put_on_conn,
    grants_lock_on_conn,
};
use crate::store::outbox::OutboxNotification;
use crate::store::projects::project_restrict_on_conn;

/// The maximum number of grants: every replica reads all of them when one changes.
const MOST: i64 = 10_000;

/// Create or replace a grant of agents to a project.
///
/// It names the agents, namespaces, kinds and the account to act as. If several grants of a project cover an agent,
/// the oldest determines the account, and grants with the same account add up. The project `default` may do
/// everything before its first grant; afterwards it is restricted to its grants, even if the last one is withdrawn.
/// Agents neither change nor delete the resources of stacks that a narrower grant no longer covers (the stacks are
/// frozen).
#[utoipa::path(put, path = "/api/v1/grants/{grant}", tag = "grants", request_body = PutGrant,
    params(("grant" = String, Path, description = "Name"), Expect),
    responses((status = 200, body = ProjectGrant, description = "Changed"), (status = 201, body = ProjectGrant, description = "Created")))]
pub async fn put_grant(
    State(broker): BrokerState,
    Path(grant): Path<String>,
    QueryParams(expect): QueryParams<Expect>,
    change: Change,
) -> ApiResult {
    let request: PutGrant = change.json()?;
    request.check().map_err(|error| ApiError::invalid_request(error.to_string()))?;
    let name: Name = grant.parse().map_err(|error: BadName| ApiError::invalid_request(error.to_string()))?;
    let token = change.caller()?.token()?;
    broker.index_is_current().await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        grants_lock_on_conn(write.conn()).await?;
        let before = grant_fetch(write.conn(), name.as_str()).await?;
        if let Some(before) = before.as_ref().filter(|before| before.project != request.project) {
            let detail =
                format!("the grant belongs to project {}; delete it and create another", before.project);
            return Err(ApiError::invalid_request(detail));
        }
        before.iter().for_each(|before| write.audit_before(before));
        if before.is_none() && grant_count_on_conn(write.conn()).await? >= MOST {
            return Err(ApiError::invalid_request(format!(
                "there are already {MOST} grants; use selectors to cover more agents with one grant"
            )));
        }
        let id = before.as_ref().map_or_else(GrantId::generate, |before| before.id);
        expect.check(&{
            let snapshot = broker.index.snapshot();
            let grants = with(&snapshot.project_grants(&request.project), id, Some(&request));
            snapshot.lost_by_grants(&request.project, &ProjectGrants::new(true, grants))
        })?;
        // Stays when the grant is deleted: a project must not gain rights because it lost its last grant.
        project_restrict_on_conn(write.conn(), &request.project, true).await?;
        let grant = grant_put_on_conn(write.conn(), id, name.as_str(), &request, &token.name).await?;
        let grant = grant.ok_or_else(|| ApiError::not_found("project"))?;
        write.notify(&grant.project, OutboxNotification::Grant(grant.id)).await?;
        write.finish(if before.is_none() { StatusCode::CREATED } else { StatusCode::OK }, &grant).await
    })
    .await
}

/// Returns the grants of a project with one of them replaced or left out.
pub(super) fn with(grants: &ProjectGrants, id: GrantId, new: Option<&PutGrant>) -> Vec<GrantFacts> {
    let known = match grants {
        ProjectGrants::Unlimited => &[][..],
        ProjectGrants::Listed(grants) => grants,
    };
    let new = new.map(|new| GrantFacts {
        id,
        project: new.project.clone(),
        selector: new.selector.clone(),
        allows: Arc::new(Grant {
            namespaces: new.namespaces.clone(),
            kinds: new.kinds.clone(),
            account: Some(new.account.clone()),
        }),
    });
    known.iter().filter(|grant| grant.id != id).cloned().chain(new).collect()
}

/// List the grants of all projects, by name.
#[utoipa::path(get, path = "/api/v1/grants", tag = "grants", params(Paging),
    responses((status = 200, body = Page<ProjectGrant>)))]
pub async fn list_grants(
    State(broker): BrokerState,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<ProjectGrant>>> {
    let limit = paging.limit();
    let grants = grant_list(&broker.pool, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(grants, limit, |grant: &ProjectGrant| grant.name.to_string())))
}

/// Get a grant.
#[utoipa::path(get, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Name")), responses((status = 200, body = ProjectGrant)))]
pub async fn get_grant(
    State(broker): BrokerState,
    Path(grant): Path<String>,
) -> ApiResult<Json<ProjectGrant>> {
    let grant = grant_fetch(&broker.pool, &grant).await?;
    grant.map(Json).ok_or_else(|| ApiError::not_found("grant"))
}

/// Withdraw a grant.
///
/// Agents neither change nor delete the resources of stacks that no other grant covers (the stacks are
/// frozen). A project without its last grant may do nothing, also the project `default`; an admin can lift
/// that restriction of `default` (`PUT /api/v1/projects/default`).
#[utoipa::path(delete, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Name"), Expect),
    responses((status = 204, description = "Withdrawn")))]
pub async fn delete_grant(
    State(broker): BrokerState,
    Path(grant): Path<String>,
    QueryParams(expect): QueryParams<Expect>,
    change: Change,
) -> ApiResult {
    broker.index_is_current().await?;
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        grants_lock_on_conn(write.conn()).await?;
        let grant = grant_fetch(write.conn(), &grant).await?;
        let grant = grant.ok_or_else(|| ApiError::not_found("grant"))?;
        write.audit_before(&grant);
        expect.check(&{
            let snapshot = broker.index.snapshot();
            let grants = with(&snapshot.project_grants(&grant.project), grant.id, None);
            snapshot.lost_by_grants(&grant.project, &ProjectGrants::new(true, grants))
        })?;
        grant_delete_on_conn(write.conn(), grant.id).await?;
        write.notify(&grant.project, OutboxNotification::Grant(grant.id)).await?;
        write.finish_empty().await
    })
    .await
}

//! Grants: which agents a project may use, for which resources, and as which account. Only admins write them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::envelope::Grant;
use brokkr_api::grants::{ProjectGrant, PutGrant};
use brokkr_api::names::BadName;
use brokkr_api::page::Page;
use brokkr_api::{GrantId, Name};
use http::StatusCode;

use crate::domain::grants::{GrantFacts, ProjectGrants};
use crate::error::ApiError;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::{Asked, Paging};
use crate::http::write::{self, Keep};
use crate::state::Broker;
use crate::store::grants::{
    grant_count_on_conn, grant_delete_on_conn, grant_fetch, grant_list, grant_put_on_conn,
    grants_lock_on_conn,
};
use crate::store::outbox::Doorbell;

/// Grants of an installation. Every replica reads all of them when one changes.
const MOST: i64 = 10_000;

/// Grant agents to a project: which, for which namespaces and kinds, and as which account. Where several grants of a
/// project cover an agent, the oldest says as whom, and those with the same account add up. The project `default`
/// may do everything until it has a grant. What a narrowed grant no longer covers is frozen, not removed.
#[utoipa::path(put, path = "/api/v1/grants/{grant}", tag = "grants", request_body = PutGrant,
    params(("grant" = String, Path, description = "Name"), Expect),
    responses((status = 200, body = ProjectGrant, description = "Changed"), (status = 201, body = ProjectGrant, description = "Created")))]
pub async fn put_grant(
    State(broker): State<Arc<Broker>>,
    Path(grant): Path<String>,
    Asked(expect): Asked<Expect>,
    change: Change,
) -> Result<Response, ApiError> {
    let wanted: PutGrant = change.json()?;
    wanted.check().map_err(|error| ApiError::unreadable(error.to_string()))?;
    let name: Name = grant.parse().map_err(|error: BadName| ApiError::unreadable(error.to_string()))?;
    let token = change.caller()?.token()?;
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        grants_lock_on_conn(write.conn()).await?;
        let before = grant_fetch(write.conn(), name.as_str()).await?;
        if let Some(before) = before.as_ref().filter(|before| before.project != wanted.project) {
            let detail = format!("the grant is of project {}: delete it, and make another", before.project);
            return Err(ApiError::unreadable(detail));
        }
        before.iter().for_each(|before| write.was(before));
        if before.is_none() && grant_count_on_conn(write.conn()).await? >= MOST {
            return Err(ApiError::unreadable(format!("there are {MOST} grants already; use selectors")));
        }
        let id = before.as_ref().map_or_else(GrantId::generate, |before| before.id);
        expect.allow(&{
            let picture = broker.index.picture();
            let grants = with(&picture.project_grants(&wanted.project), id, Some(&wanted));
            picture.lost_by_grants(&wanted.project, &ProjectGrants::new(&wanted.project, grants))
        })?;
        let grant = grant_put_on_conn(write.conn(), id, name.as_str(), &wanted, &token.name).await?;
        let grant = grant.ok_or_else(|| ApiError::not_found("project"))?;
        write.ring(&grant.project, Doorbell::Grant(grant.id)).await?;
        write.finish(if before.is_none() { StatusCode::CREATED } else { StatusCode::OK }, &grant).await
    })
    .await
}

/// The grants of a project, with one of them replaced or left out.
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
    State(broker): State<Arc<Broker>>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<ProjectGrant>>, ApiError> {
    let limit = paging.limit();
    let grants = grant_list(&broker.pool, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(grants, limit, |grant: &ProjectGrant| grant.name.to_string())))
}

/// Read a grant.
#[utoipa::path(get, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Name")), responses((status = 200, body = ProjectGrant)))]
pub async fn get_grant(
    State(broker): State<Arc<Broker>>,
    Path(grant): Path<String>,
) -> Result<Json<ProjectGrant>, ApiError> {
    let grant = grant_fetch(&broker.pool, &grant).await?;
    grant.map(Json).ok_or_else(|| ApiError::not_found("grant"))
}

/// Withdraw a grant. Stacks that agents hold by it stay as they are, frozen: nothing is written, nothing deleted.
#[utoipa::path(delete, path = "/api/v1/grants/{grant}", tag = "grants",
    params(("grant" = String, Path, description = "Name"), Expect),
    responses((status = 204, description = "Withdrawn")))]
pub async fn delete_grant(
    State(broker): State<Arc<Broker>>,
    Path(grant): Path<String>,
    Asked(expect): Asked<Expect>,
    change: Change,
) -> Result<Response, ApiError> {
    write::run(&broker, &change, Keep::Plain, async |mut write| {
        grants_lock_on_conn(write.conn()).await?;
        let grant = grant_fetch(write.conn(), &grant).await?;
        let grant = grant.ok_or_else(|| ApiError::not_found("grant"))?;
        write.was(&grant);
        expect.allow(&{
            let picture = broker.index.picture();
            let grants = with(&picture.project_grants(&grant.project), grant.id, None);
            picture.lost_by_grants(&grant.project, &ProjectGrants::new(&grant.project, grants))
        })?;
        grant_delete_on_conn(write.conn(), grant.id).await?;
        write.ring(&grant.project, Doorbell::Grant(grant.id)).await?;
        write.finish_empty().await
    })
    .await
}

//! Projects: owners of stacks, tokens and webhooks, with their quotas.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::names::{BadName, DEFAULT_PROJECT};
use brokkr_api::page::Page;
use brokkr_api::projects::{Project, PutProject};
use brokkr_api::{ErrorCode, GrantId, Name};
use http::StatusCode;

use crate::access::Caller;
use crate::domain::grants::ProjectGrants;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::expect::Expect;
use crate::http::paging::{Paging, QueryParams};
use crate::http::write::{self, ResultStorage, Write};
use crate::state::Broker;
use crate::store::grants::{grants_lock_on_conn, grants_of_project};
use crate::store::outbox::OutboxNotification;
use crate::store::projects::{
    Deleted, project_delete_on_conn, project_fetch, project_list, project_put_on_conn,
    project_restrict_on_conn,
};

/// Create a project, or change its quotas.
///
/// What is not given stays as it is. A quota below the current use removes nothing; it only refuses more. With
/// `restricted`, the project `default` is restricted to its grants before it has one, or no longer after it had some. A
/// restriction that freezes stacks needs `expect`.
#[utoipa::path(put, path = "/api/v1/projects/{project}", tag = "projects", request_body = PutProject,
    params(("project" = String, Path, description = "Name"), Expect),
    responses((status = 200, body = Project, description = "Changed"), (status = 201, body = Project, description = "Created")))]
pub async fn put_project(
    State(broker): BrokerState,
    Path(project): Path<String>,
    QueryParams(expect): QueryParams<Expect>,
    change: Change,
) -> ApiResult {
    let request: PutProject = change.json_or_default()?;
    let name: Name =
        project.parse().map_err(|error: BadName| ApiError::invalid_request(error.to_string()))?;
    if request.restricted == Some(false) && name.as_str() != DEFAULT_PROJECT {
        let detail = format!("only the project {DEFAULT_PROJECT} can act without grants");
        return Err(ApiError::invalid_request(detail));
    }
    if request.restricted == Some(true) {
        broker.index_is_current().await?;
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        if request.restricted.is_some() {
            // Before the project, as for changes of grants: otherwise the two could deadlock.
            grants_lock_on_conn(write.conn()).await?;
        }
        if let Some(before) = project_fetch(write.conn(), name.as_str()).await? {
            write.audit_before(&before);
        }
        let created = project_put_on_conn(write.conn(), name.as_str(), &request.allowed).await?;
        if let Some(restricted) = request.restricted {
            restrict(&broker, &mut write, name.as_str(), restricted, expect).await?;
        }
        let project = project_fetch(write.conn(), name.as_str()).await?;
        let project: Project = project.ok_or_else(|| ApiError::not_found("project"))?;
        write.finish(if created { StatusCode::CREATED } else { StatusCode::OK }, &project).await
    })
    .await
}

/// Restricts the project to its grants, or lifts the restriction. The grants have to be locked.
async fn restrict(
    broker: &Broker,
    write: &mut Write,
    project: &str,
    restricted: bool,
    expect: Expect,
) -> ApiResult<()> {
    let grants = grants_of_project(write.conn(), project).await?;
    if !restricted && !grants.is_empty() {
        let detail = format!("the project {project} has grants; delete them first");
        return Err(ApiError::invalid_request(detail));
    }
    if restricted && grants.is_empty() {
        let nothing = ProjectGrants::new(true, Vec::new());
        expect.check(&broker.index.snapshot().lost_by_grants(project, &nothing))?;
    }
    if project_restrict_on_conn(write.conn(), project, restricted).await? {
        // Replicas read the restriction together with the grants, whichever grant the notification names.
        write.notify(project, OutboxNotification::Grant(GrantId::generate())).await?;
    }
    Ok(())
}

/// List the projects that the caller may see, by name.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(Paging),
    responses((status = 200, body = Page<Project>)))]
pub async fn list_projects(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<Project>>> {
    let token = caller.token()?;
    let only = (!token.role.is_over_installation()).then_some(token.project.as_str());
    let limit = paging.limit();
    let projects = project_list(&broker.pool, only, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(projects, limit, |project| project.name.to_string())))
}

/// Get a project with its quotas and current use.
#[utoipa::path(get, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Name")), responses((status = 200, body = Project)))]
pub async fn get_project(
    State(broker): BrokerState,
    caller: Caller,
    Path(project): Path<String>,
) -> ApiResult<Json<Project>> {
    let missing = || ApiError::not_found("project");
    let token = caller.token()?;
    if !token.role.is_over_installation() && token.project != project {
        return Err(missing());
    }
    project_fetch(&broker.pool, &project).await?.map(Json).ok_or_else(missing)
}

/// Delete a project.
///
/// Refused while it has valid tokens, webhooks or grants, and always if it ever had a stack.
#[utoipa::path(delete, path = "/api/v1/projects/{project}", tag = "projects",
    params(("project" = String, Path, description = "Name")), responses((status = 204, description = "Deleted")))]
pub async fn delete_project(
    State(broker): BrokerState,
    Path(project): Path<String>,
    change: Change,
) -> ApiResult {
    let in_use = |what: &str| ApiError::new(ErrorCode::BRK1008, format!("the project {project} has {what}"));
    if project == DEFAULT_PROJECT {
        let detail = format!("the project {project} cannot be deleted");
        return Err(ApiError::new(ErrorCode::BRK1008, detail));
    }
    if change.caller()?.project() == project {
        return Err(ApiError::invalid_request("a token cannot delete the project that it acts in"));
    }
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        if let Some(before) = project_fetch(write.conn(), &project).await? {
            write.audit_before(&before);
        }
        match project_delete_on_conn(write.conn(), &project).await? {
            Deleted::Gone => {}
            Deleted::Absent => return Err(ApiError::not_found("project")),
            Deleted::InUse(what) => return Err(in_use(what)),
        }
        let response = write.finish_empty().await?;
        broker.access.tokens.forget_project(&project).await;
        Ok(response)
    })
    .await
}

//! Maintenance windows and freezes. Only admins write them.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::names::BadName;
use brokkr_api::page::Page;
use brokkr_api::windows::{PutWindow, Window};
use brokkr_api::{Name, WindowId};
use http::StatusCode;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams};
use crate::http::write::{self, ResultStorage};
use crate::store::outbox::OutboxNotification;
use crate::store::projects::project_fetch;
use crate::store::windows::{
    window_delete_on_conn, window_fetch, window_list, window_put_on_conn, windows_lock_on_conn,
};

/// The maximum number of windows: each of them is compared with each agent of a rollout.
const MOST: i64 = 1000;

/// Create or replace a maintenance window or a freeze.
///
/// Outside of its window, and in a freeze, an agent begins no version and no removal. It goes on with what it has begun, and repairs
/// drift. Rollbacks, and versions that are submitted with `now`, do not wait. If several windows select an agent, the first by name
/// applies, and every freeze.
#[utoipa::path(put, path = "/api/v1/windows/{window}", tag = "windows", request_body = PutWindow,
    params(("window" = String, Path, description = "Name")),
    responses((status = 200, body = Window, description = "Changed"), (status = 201, body = Window, description = "Created")))]
pub async fn put_window(State(broker): BrokerState, Path(window): Path<String>, change: Change) -> ApiResult {
    let request: PutWindow = change.json()?;
    request.check().map_err(ApiError::invalid_request)?;
    let name: Name = window.parse().map_err(|error: BadName| ApiError::invalid_request(error.to_string()))?;
    let (project, token) = (change.caller()?.project(), change.caller()?.token()?);
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let count = windows_lock_on_conn(write.conn()).await?;
        if let Some(project) = &request.project {
            let found = project_fetch(write.conn(), project).await?;
            found.ok_or_else(|| ApiError::not_found("project"))?;
        }
        let before = window_fetch(write.conn(), name.as_str()).await?;
        before.iter().for_each(|before| write.audit_before(before));
        if before.is_none() && count >= MOST {
            let detail = format!("there are already {MOST} windows; delete freezes that have ended");
            return Err(ApiError::invalid_request(detail));
        }
        let id = before.as_ref().map_or_else(WindowId::generate, |before| before.id);
        let window = window_put_on_conn(write.conn(), id, &name, &request, &token.name).await?;
        write.notify(project, OutboxNotification::Window(id)).await?;
        write.finish(if before.is_none() { StatusCode::CREATED } else { StatusCode::OK }, &window).await
    })
    .await
}

/// Returns the project whose windows the caller may see, or none if it may see all of them.
fn only(caller: &Caller) -> ApiResult<Option<&str>> {
    let token = caller.token()?;
    Ok((!token.role.is_over_installation()).then_some(token.project.as_str()))
}

/// List maintenance windows and freezes, by name.
#[utoipa::path(get, path = "/api/v1/windows", tag = "windows", params(Paging),
    responses((status = 200, body = Page<Window>)))]
pub async fn list_windows(
    State(broker): BrokerState,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<Window>>> {
    let limit = paging.limit();
    let windows = window_list(&broker.pool, only(&caller)?, paging.after.as_deref(), limit).await?;
    Ok(Json(Page::cut(windows, limit, |window: &Window| window.name.to_string())))
}

/// Get a maintenance window or a freeze.
#[utoipa::path(get, path = "/api/v1/windows/{window}", tag = "windows",
    params(("window" = String, Path, description = "Name")), responses((status = 200, body = Window)))]
pub async fn get_window(
    State(broker): BrokerState,
    caller: Caller,
    Path(window): Path<String>,
) -> ApiResult<Json<Window>> {
    let only = only(&caller)?;
    let window = window_fetch(&broker.pool, &window).await?;
    let concerns =
        |window: &Window| only.is_none_or(|only| window.project.as_deref().is_none_or(|of| of == only));
    window.filter(concerns).map(Json).ok_or_else(|| ApiError::not_found("window"))
}

/// Delete a maintenance window or a freeze.
#[utoipa::path(delete, path = "/api/v1/windows/{window}", tag = "windows",
    params(("window" = String, Path, description = "Name")), responses((status = 204, description = "Deleted")))]
pub async fn delete_window(
    State(broker): BrokerState,
    Path(window): Path<String>,
    change: Change,
) -> ApiResult {
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        windows_lock_on_conn(write.conn()).await?;
        let window = window_fetch(write.conn(), &window).await?;
        let window = window.ok_or_else(|| ApiError::not_found("window"))?;
        write.audit_before(&window);
        window_delete_on_conn(write.conn(), window.id).await?;
        write.notify(project, OutboxNotification::Window(window.id)).await?;
        write.finish_empty().await
    })
    .await
}

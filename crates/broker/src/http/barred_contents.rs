//! Contents that a stack refuses after a rollback.

use axum::Json;
use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::BarredContent;
use brokkr_api::page::Page;

use crate::access::Caller;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::Change;
use crate::http::paging::{Paging, QueryParams, cursor};
use crate::http::stacks::{find_stack, lock_stack};
use crate::http::write::{self, ResultStorage};
use crate::store::barred_contents::{barred_content_delete_on_conn, barred_content_list};

/// Returns the error for a barred content.
pub fn refusal(bar: &BarredContent) -> ApiError {
    let because = if bar.reason.is_empty() { String::new() } else { format!(": {}", bar.reason) };
    let detail = format!(
        "this content, version {}, was rolled back by {} at {}{because}",
        bar.sequence_id, bar.barred_by, bar.created_at
    );
    ApiError::new(ErrorCode::BRK2011, detail)
}

/// List the barred content of a stack, newest first.
#[utoipa::path(get, path = "/api/v1/stacks/{stack}/barred-contents", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), Paging),
    responses((status = 200, body = Page<BarredContent>)))]
pub async fn list_barred_contents(
    State(broker): BrokerState,
    caller: Caller,
    Path(stack): Path<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> ApiResult<Json<Page<BarredContent>>> {
    let project = caller.project();
    let stack = find_stack(&broker, project, &stack).await?;
    let (below, limit) = (cursor(paging.after.as_deref())?, paging.limit());
    let barred = barred_content_list(&broker.pool, project, stack.id, below, limit).await?;
    Ok(Json(Page::cut(barred, limit, |one| one.sequence_id.to_string())))
}

/// Allow a barred content to be submitted again.
#[utoipa::path(delete, path = "/api/v1/stacks/{stack}/barred-contents/{checksum}", tag = "deployment objects",
    params(("stack" = String, Path, description = "Name or id"), ("checksum" = String, Path, description = "SHA-256 of the content, in hex")),
    responses((status = 204, description = "The content can be submitted again")))]
pub async fn delete_barred_content(
    State(broker): BrokerState,
    Path((stack, checksum)): Path<(String, String)>,
    change: Change,
) -> ApiResult {
    let missing = || ApiError::not_found("barred content");
    let checksum: Checksum = checksum.parse().map_err(|_| missing())?;
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        if !barred_content_delete_on_conn(write.conn(), &locked, checksum).await? {
            return Err(missing());
        }
        write.audit_digests(Some(checksum), None);
        write.finish_empty().await
    })
    .await
}

//! Deletes the contents of a deleted stack before the end of their retention.

use axum::extract::{Path, State};
use brokkr_api::ErrorCode;
use brokkr_api::stacks::{PurgeStack, PurgedStack};
use http::StatusCode;

use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::change::{Change, check_reason};
use crate::http::stacks::lock_stack;
use crate::http::write::{self, ResultStorage};
use crate::store::content_retention::content_purge_on_conn;

/// Delete the stored contents of a deleted stack.
///
/// The history stays: sequence ids, checksums, authors and times. Contents that agents have in their clusters are deleted
/// there when the agents remove the stack. Backups of the database still have the contents.
#[utoipa::path(post, path = "/api/v1/stacks/{stack}/purge", tag = "stacks", request_body = PurgeStack,
    params(("stack" = String, Path, description = "Id, or name if no other stack has the name")),
    responses((status = 200, body = PurgedStack)))]
pub async fn purge_stack(State(broker): BrokerState, Path(stack): Path<String>, change: Change) -> ApiResult {
    let request: PurgeStack = change.json()?;
    let reason = check_reason(&request.reason)?;
    let project = change.caller()?.project();
    write::run(&broker, &change, ResultStorage::Plain, async |mut write| {
        let locked = lock_stack(&mut write, project, &stack).await?;
        if locked.deleted_at.is_none() {
            let detail = format!("stack {} is not deleted", locked.name);
            return Err(ApiError::new(ErrorCode::BRK2021, detail));
        }
        write.audit_reason(reason);
        let versions = content_purge_on_conn(write.conn(), &locked).await?;
        tracing::info!(stack_id = %locked.id, stack = locked.name, versions, "purged a deleted stack");
        let purged = PurgedStack { stack_id: locked.id, stack_name: locked.name, versions };
        write.finish(StatusCode::OK, &purged).await
    })
    .await
}

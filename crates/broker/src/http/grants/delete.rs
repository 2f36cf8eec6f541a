//! Withdraws a grant. What it covered is frozen.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use super::put::with;
use crate::state::Broker;
use crate::domain::grants::ProjectGrants;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::expect::Expect;
use crate::http::paging::Asked;
use crate::http::write::{Begun, Keep, Write};
use crate::store::grants::{grant_delete_on_conn, grant_fetch, grants_lock_on_conn};
use crate::store::outbox::OutboxNotification;

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
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    grants_lock_on_conn(write.conn()).await?;
    let grant = grant_fetch(write.conn(), &grant).await?;
    let grant = grant.ok_or_else(|| ApiError::not_found("grant"))?;
    write.was(&grant);
    expect.allow(&{
        let snapshot = broker.index.snapshot();
        let grants = with(&snapshot.project_grants(&grant.project), grant.id, None);
        snapshot.lost_by_grants(&grant.project, &ProjectGrants::new(&grant.project, grants))
    })?;
    grant_delete_on_conn(write.conn(), grant.id).await?;
    write.notify(&grant.project, OutboxNotification::Grant(grant.id)).await?;
    write.finish_empty().await
}

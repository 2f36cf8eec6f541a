//! Stacks that agents hold and the database does not know, because it was restored.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::page::Page;
use brokkr_api::system::UnsettledStack;

use crate::state::Broker;
use crate::error::ApiError;
use crate::http::paging::{Asked, Paging, cursor};
use crate::store::restore::{Sort, restore_list};

/// Stacks that agents hold and the database does not know, because it was restored.
#[utoipa::path(get, path = "/api/v1/system/unknown", tag = "system", params(Paging),
    responses((status = 200, body = Page<UnsettledStack>)))]
pub async fn list_unknown(
    State(broker): State<Arc<Broker>>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<Page<UnsettledStack>>, ApiError> {
    let limit = paging.limit();
    let after = cursor(paging.after.as_deref())?;
    let stacks = restore_list(&broker.pool, Sort::Unknown, after, limit).await?;
    Ok(Json(Page::cut(stacks, limit, |stack: &UnsettledStack| stack.stack_id.to_string())))
}

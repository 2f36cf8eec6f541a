//! Contents that the database lost and this agent keeps, as far as somebody wants them back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::system::WantedContents;

use brokkr_api::StackId;
use serde::Deserialize;

use crate::access::Caller;
use crate::state::Broker;
use crate::error::ApiError;
use crate::store::restore::restore_wanted_of;

/// Of which stack a content is wanted: the path of those who hand it over.
#[derive(Clone, Debug, Deserialize)]
pub struct DesiredObject {
    stack: String,
}

impl DesiredObject {
    pub fn stack(&self) -> Result<StackId, ApiError> {
        self.stack.parse().map_err(|_| ApiError::not_found("wanted content"))
    }
}

/// Which contents are wanted of the agent. Asked when an answer to a poll has the header `brokkr-wants`.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/wanted-contents", tag = "agents",
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = WantedContents)))]
pub async fn list_wanted_contents(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
) -> Result<Json<WantedContents>, ApiError> {
    let items = restore_wanted_of(&broker.pool, caller.agent()?.id).await?;
    Ok(Json(WantedContents { items }))
}

//! An agent cannot hand over what it was asked for.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::wanted_contents::DesiredObject;
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::paging::Asked;
use crate::http::write::{Begun, Keep, Write};
use crate::store::restore::restore_refuse_on_conn;

const LONGEST: usize = 1000;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// What stands in the way, for the person who asked.
    pub why: String,
}

/// Say that a content that was asked for cannot be handed over.
#[utoipa::path(delete, path = "/api/v1/agents/{agent}/wanted-contents/{stack}", tag = "agents",
    params(("agent" = String, Path, description = "Id"), ("stack" = String, Path, description = "Id"), Refusal),
    responses((status = 204, description = "Noted")))]
pub async fn refuse_content(
    State(broker): State<Arc<Broker>>,
    Path(wanted): Path<DesiredObject>,
    Asked(refusal): Asked<Refusal>,
    change: Change,
) -> Result<Response, ApiError> {
    let (agent, stack) = (change.caller()?.agent()?.id, wanted.stack()?);
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let mut why = refusal.why;
    why.retain(|character| !character.is_control());
    why.truncate(why.floor_char_boundary(LONGEST));
    if !restore_refuse_on_conn(write.conn(), stack, agent, &why).await? {
        return Err(ApiError::not_found("wanted content"));
    }
    write.finish_empty().await
}

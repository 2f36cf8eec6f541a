//! Asks an agent for a new key. It is told with its next answer, and changes the key itself: see `rotate_key`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use brokkr_api::agents::Agent;

use super::change::{find, finish};
use crate::state::Broker;
use crate::http::change::Change;
use crate::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agent_keys::agent_keys_ask_on_conn;

/// Ask an agent for a new key. It makes one in its cluster, and registers it with the one that it has; that one is then good
/// for another hour. Until it has done so, `rotation_asked_at` is there. An agent whose keys were revoked is not asked.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/rotation", tag = "agents",
    params(("agent" = String, Path, description = "Name or id")), responses((status = 200, body = Agent)))]
pub async fn ask_for_key(
    State(broker): State<Arc<Broker>>,
    Path(agent): Path<String>,
    change: Change,
) -> Result<Response, ApiError> {
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let found = find(&mut write, &agent).await?;
    agent_keys_ask_on_conn(write.conn(), found.id).await?;
    tracing::info!(agent_id = %found.id, agent = %found.name, "agent is asked for a new key");
    finish(write, &found).await
}

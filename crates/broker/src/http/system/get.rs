//! The installation: its epoch, whether it is on hold, and how much is left to settle.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use brokkr_api::protocol::{OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION};
use brokkr_api::system::System;

use crate::state::Broker;
use crate::error::ApiError;
use crate::store::agents::agent_versions;
use crate::store::installation::{installation_raised, installation_state};
use crate::store::restore::restore_count;

/// Versions of agents that are told.
const VERSIONS: i64 = 20;

/// How the installation stands: epoch, hold, what a restore left to settle.
#[utoipa::path(get, path = "/api/v1/system", tag = "system", responses((status = 200, body = System)))]
pub async fn get_system(State(broker): State<Arc<Broker>>) -> Result<Json<System>, ApiError> {
    let state = installation_state(&broker.pool).await?;
    let counts = restore_count(&broker.pool).await?;
    Ok(Json(System {
        installation: broker.installation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL_VERSION,
        oldest_protocol: OLDEST_PROTOCOL_VERSION,
        epoch: state.epoch,
        position: broker.index.position().to_string(),
        hold: state.hold,
        agents_to_tell: counts.to_tell.cast_unsigned(),
        stacks_ahead: counts.ahead.cast_unsigned(),
        stacks_unknown: counts.unknown.cast_unsigned(),
        targets_kept: counts.kept.cast_unsigned(),
        raised: installation_raised(&broker.pool).await?,
        agent_versions: agent_versions(&broker.pool, VERSIONS).await?,
    }))
}

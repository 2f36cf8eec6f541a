//! An agent started: the highest count serves.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use brokkr_api::agents::{OpenSession, OpenedSession, SessionVerdict};
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use crate::broker::Broker;
use crate::http::change::Change;
use crate::http::error::ApiError;
use crate::http::write::{Begun, Keep, Write};
use crate::store::agents::agent_open_session_on_conn;
use crate::store::outbox::Doorbell;

/// Open a session. The verdict says whether this process may write.
#[utoipa::path(post, path = "/api/v1/agents/{agent}/session", tag = "agents", request_body = OpenSession,
    params(("agent" = String, Path, description = "Id")), responses((status = 200, body = OpenedSession)))]
pub async fn open_session(State(broker): State<Arc<Broker>>, change: Change) -> Result<Response, ApiError> {
    let session: OpenSession = change.json()?;
    let agent = change.caller()?.agent()?.id;
    if session.count < 1 {
        return Err(ApiError::unreadable("a session counts from 1"));
    }
    let mut write = match Write::begin(&broker, &change, Keep::Plain).await? {
        Begun::New(write) => write,
        Begun::Again(response) => return Ok(response),
    };
    let verdict = agent_open_session_on_conn(write.conn(), agent, session).await?;
    if verdict != SessionVerdict::Superseded {
        write.ring(DEFAULT_PROJECT, Doorbell::Agent(agent)).await?;
    }
    if verdict == SessionVerdict::Tied {
        tracing::error!(agent_id = %agent, count = session.count, "two processes claim to be this agent");
    }
    write.finish(StatusCode::OK, &OpenedSession { verdict }).await
}

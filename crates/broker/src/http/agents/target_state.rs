//! The target state of an agent. The envelope is looked up in the index, or waited for, without SQL.

mod poll;
pub mod repeated;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse as _;
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::AuditKind;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::TargetObject;
use brokkr_api::protocol::{
    Capabilities, ENVELOPE_MEDIA_TYPE, LONGEST_WAIT_SECONDS, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION,
    Session, header,
};
use brokkr_api::{AgentId, ErrorCode, PositionToken, SequenceId};
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use poll::{KnownEtag, poll};
use repeated::RepeatedPoll;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::domain::envelope::desired;
use crate::domain::targeting::reaches;
use crate::error::{ApiError, ApiResult};
use crate::http::BrokerState;
use crate::http::agents::agent_facts;
use crate::http::headers::{capabilities, optional, position, preferred_wait};
use crate::state::Broker;
use crate::state::long_poll::{PollResult, WaitInListener};

/// The route as in the route table.
pub const ROUTE: &str = "/api/v1/agents/{agent}/target-state";

/// Get the target state of an agent.
///
/// With the envelope's media type: sequence ids, checksums and removals without content, as a long poll
/// (`If-None-Match` and `Prefer: wait=SECONDS`). Otherwise: the deployment objects with their content, ordered by
/// sequence id.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/target-state", tag = "agents",
    params(("agent" = String, Path, description = "Id; for admins also the name")),
    responses(
        (status = 200, content(
            (Vec<TargetObject> = "application/json"),
            (brokkr_api::envelope::Envelope = "application/vnd.brokkr.target-state.v1+json"),
        )),
        (status = 304, description = "Nothing changed during the wait"),
    ))]
pub async fn target_state(
    State(broker): BrokerState,
    caller: Caller,
    Path(agent): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    request: Request,
) -> ApiResult {
    // Headers are moved, not copied: fifty thousand polls may wait at once.
    let parts = request.into_parts().0;
    let (headers, waits_in_listener) = (parts.headers, parts.extensions.get::<WaitInListener>().is_some());
    let claims = PollClaims::read(&headers)?;
    let wants_envelope = headers.get_all(ACCEPT).iter().any(|accept| {
        accept
            .as_bytes()
            .windows(ENVELOPE_MEDIA_TYPE.len())
            .any(|part| part == ENVELOPE_MEDIA_TYPE.as_bytes())
    });
    if wants_envelope {
        let agent = agent_facts(&broker.index.snapshot(), &agent)?.id;
        let is_waiting = claims.wait.is_some_and(|seconds| seconds > 0);
        let waits_in_listener = waits_in_listener && is_waiting && matches!(caller, Caller::Agent(_));
        let now = if waits_in_listener { PollClaims { wait: None, ..claims } } else { claims };
        let mut response = poll(&broker, &caller, agent, KnownEtag::Headers(headers), &now).await?;
        if let Caller::Agent(caller) = caller
            && response.status() == StatusCode::NOT_MODIFIED
        {
            let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
            let repeated = Arc::new(RepeatedPoll::new(broker, caller, claims, etag.to_owned()).await);
            let result =
                if waits_in_listener { PollResult::Parked(repeated) } else { PollResult::Answered(repeated) };
            response.extensions_mut().insert(result);
        }
        return Ok(response);
    }
    // Rare paths are boxed, so that they take no memory while a poll waits.
    Box::pin(broker.catch_up(&caller, claims.position)).await?;
    if let Caller::Token(_) = caller {
        // The content may include Secrets.
        Box::pin(broker.note(AuditKind::SecretsRead, &caller, &origin)).await?;
    }
    let agent = agent_facts(&broker.index.snapshot(), &agent)?.id;
    Box::pin(plain(&broker, agent)).await
}

/// The headers of a poll.
#[derive(Clone, Copy, Debug)]
struct PollClaims {
    /// The highest position that the caller has seen.
    position: Option<PositionToken>,
    session: Option<Session>,
    holds: Option<Checksum>,
    capabilities: Capabilities,
    wait: Option<u64>,
}

impl PollClaims {
    fn read(headers: &HeaderMap) -> ApiResult<Self> {
        let protocol: Option<u32> = optional(headers, header::PROTOCOL)?;
        if let Some(version) = protocol
            && !(OLDEST_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&version)
        {
            let detail = format!(
                "the agent uses protocol version {version}; this broker supports {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
            );
            return Err(ApiError::new(ErrorCode::BRK2007, detail));
        }
        Ok(Self {
            position: position(headers)?,
            session: optional(headers, header::SESSION)?,
            holds: optional(headers, header::HOLDS)?,
            capabilities: capabilities(headers),
            wait: preferred_wait(headers).map(|seconds| seconds.min(LONGEST_WAIT_SECONDS)),
        })
    }
}

/// Responds with the deployment objects and their content, read from the database through the cache.
async fn plain(broker: &Broker, agent: AgentId) -> ApiResult {
    let (mut wanted, stamp): (Vec<SequenceId>, _) = {
        let snapshot = broker.index.snapshot();
        let stamp = broker.index.freshness().stamp();
        let agent = snapshot.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        // Content is for targets only. Deletion markers have none.
        let objects = snapshot.candidates(agent).filter_map(|stack| {
            let wanted = desired(agent, stack)?;
            (stack.deleted || reaches(agent, stack)).then(|| wanted.sequence_id())
        });
        let wanted = match agent.status {
            AgentStatus::Inactive => Vec::new(),
            AgentStatus::Active => objects.collect(),
        };
        (wanted, stamp)
    };
    wanted.sort_unstable();
    wanted.dedup();
    let mut objects = Vec::with_capacity(wanted.len());
    for sequence_id in wanted {
        let stored = broker.stored_object(sequence_id).await?;
        let stored = stored.ok_or_else(|| ApiError::new(ErrorCode::BRK9001, "an object has no content"))?;
        let content = String::from_utf8_lossy(&stored.content).into_owned();
        objects.push(TargetObject { object: stored.object.clone(), content });
    }
    let mut response = axum::Json(objects).into_response();
    let headers = response.headers_mut();
    headers.insert(header::POSITION, broker.access.positions.header_of_index(stamp));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
    Ok(response)
}

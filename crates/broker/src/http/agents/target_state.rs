//! What an agent should have. The envelope is looked up in the index, or waited for; no SQL on that path.

mod poll;
pub mod repeated;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::AuditKind;
use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::TargetObject;
use brokkr_api::protocol::{
    ENVELOPE_MEDIA_TYPE, LONGEST_WAIT_SECONDS, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Session, header,
};
use brokkr_api::{AgentId, ErrorCode, Position, SequenceId};
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use poll::{Has, poll};
use repeated::RepeatedPoll;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::domain::envelope::wanted;
use crate::error::ApiError;
use crate::http::headers::{optional, position, preferred_wait, text};
use crate::state::Broker;
use crate::state::long_poll::{PollResult, WaitInListener};
use crate::store::agents::AgentRef;

/// As the table has it.
pub const ROUTE: &str = "/api/v1/agents/{agent}/target-state";

/// What the agent should have. With the envelope's media type: without contents, with what to remove, and as
/// a long poll (`If-None-Match` and `Prefer: wait=SECONDS`). Else: the deployment objects with their
/// contents, ordered by sequence id.
#[utoipa::path(get, path = "/api/v1/agents/{agent}/target-state", tag = "agents",
    params(("agent" = String, Path, description = "Id; admins may give a name")),
    responses(
        (status = 200, content(
            (Vec<TargetObject> = "application/json"),
            (brokkr_api::envelope::Envelope = "application/vnd.brokkr.target-state.v1+json"),
        )),
        (status = 304, description = "Nothing changed within the wait"),
    ))]
pub async fn target_state(
    State(broker): State<Arc<Broker>>,
    caller: Caller,
    Path(agent): Path<String>,
    Extension(origin): Extension<Arc<Origin>>,
    request: Request,
) -> Result<Response, ApiError> {
    // Headers taken, not copied: fifty thousand polls wait.
    let parts = request.into_parts().0;
    let (headers, waits_outside) = (parts.headers, parts.extensions.get::<WaitInListener>().is_some());
    let ask = Ask::read(&headers)?;
    let envelope = headers.get_all(ACCEPT).iter().any(|accept| {
        accept
            .as_bytes()
            .windows(ENVELOPE_MEDIA_TYPE.len())
            .any(|part| part == ENVELOPE_MEDIA_TYPE.as_bytes())
    });
    if envelope {
        let agent = resolve(&broker, &agent)?;
        let is_waiting = ask.wait.is_some_and(|seconds| seconds > 0);
        let waits_outside = waits_outside && is_waiting && matches!(caller, Caller::Agent(_));
        let now = if waits_outside { Ask { wait: None, ..ask } } else { ask };
        let mut response = poll(&broker, &caller, agent, Has::Told(headers), &now).await?;
        if let Caller::Agent(caller) = caller
            && response.status() == StatusCode::NOT_MODIFIED
        {
            let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
            let repeated = Arc::new(RepeatedPoll::new(broker, caller, ask, etag.to_owned()).await);
            let told =
                if waits_outside { PollResult::Parked(repeated) } else { PollResult::Answered(repeated) };
            response.extensions_mut().insert(told);
        }
        return Ok(response);
    }
    Box::pin(broker.catch_up_for(&caller, ask.position)).await?;
    if let Caller::Token(_) = caller {
        // With contents, and so with whatever Secrets are among them.
        Box::pin(broker.note(AuditKind::SecretsRead, &caller, &origin)).await?;
    }
    // Boxed here and below: what polls rarely do takes no room while they wait.
    Box::pin(plain(&broker, resolve(&broker, &agent)?)).await
}

fn resolve(broker: &Broker, agent: &str) -> Result<AgentId, ApiError> {
    let picture = broker.index.picture();
    let facts = match AgentRef::read(agent) {
        AgentRef::Id(id) => picture.agent(id),
        AgentRef::Name(name) => picture.agent_named(&name),
    };
    facts.map(|facts| facts.id).ok_or_else(|| ApiError::not_found("agent"))
}

/// What a poll claims and wants.
#[derive(Clone, Copy, Debug)]
struct Ask {
    /// What the caller has seen already.
    position: Option<Position>,
    session: Option<Session>,
    holds: Option<Checksum>,
    wait: Option<u64>,
}

impl Ask {
    fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let protocol: Option<u32> = optional(headers, header::PROTOCOL)?;
        if let Some(version) = protocol
            && !(OLDEST_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&version)
        {
            let detail = format!(
                "the agent speaks version {version}, this broker {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
            );
            return Err(ApiError::new(ErrorCode::BRK2007, detail));
        }
        Ok(Self {
            position: position(headers)?,
            session: optional(headers, header::SESSION)?,
            holds: optional(headers, header::HOLDS)?,
            wait: preferred_wait(headers).map(|seconds| seconds.min(LONGEST_WAIT_SECONDS)),
        })
    }
}

/// The array of the contract. Contents come from the database, through the cache.
async fn plain(broker: &Broker, agent: AgentId) -> Result<Response, ApiError> {
    let (mut wanted, position): (Vec<SequenceId>, Position) = {
        let picture = broker.index.picture();
        let position = broker.index.seen().stamp();
        let agent = picture.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        let objects = picture.candidates(agent).filter_map(|stack| wanted(agent, stack));
        let wanted = match agent.status {
            AgentStatus::Inactive => Vec::new(),
            AgentStatus::Active => objects
                .filter(|wanted| wanted.removal != Some(Removal::Untargeted))
                .map(|wanted| wanted.sequence_id())
                .collect(),
        };
        (wanted, position)
    };
    wanted.sort_unstable();
    wanted.dedup();
    let mut objects = Vec::with_capacity(wanted.len());
    for sequence_id in wanted {
        let stored = broker.contents.get(&broker.pool, sequence_id).await?;
        let stored = stored.ok_or_else(|| ApiError::new(ErrorCode::BRK9001, "an object has no content"))?;
        let content = String::from_utf8_lossy(&stored.content).into_owned();
        objects.push(TargetObject { object: stored.object.clone(), content });
    }
    let mut response = axum::Json(objects).into_response();
    let headers = response.headers_mut();
    headers.insert(header::POSITION, text(&position.to_string()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
    Ok(response)
}

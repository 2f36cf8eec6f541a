//! What an agent should have. The envelope is looked up in the index, or waited for; no SQL on that path.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::TargetObject;
use brokkr_api::protocol::{
    ENVELOPE_MEDIA_TYPE, LONGEST_WAIT_SECONDS, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Session, header,
};
use brokkr_api::{AgentId, ErrorCode, SequenceId};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::access::Caller;
use crate::broker::Broker;
use crate::domain::envelope::{Answer, wanted};
use crate::domain::session::refusal;
use crate::http::error::ApiError;
use crate::http::headers::{has_already, optional, position, preferred_wait, text};
use crate::store::agents::AgentRef;

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
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let ask = Ask::read(&headers)?;
    broker.catch_up(position(&headers)?).await?;
    let agent = resolve(&broker, &agent)?;
    let envelope = headers.get_all(ACCEPT).iter().any(|accept| {
        accept
            .as_bytes()
            .windows(ENVELOPE_MEDIA_TYPE.len())
            .any(|part| part == ENVELOPE_MEDIA_TYPE.as_bytes())
    });
    if envelope { poll(&broker, &caller, agent, &headers, &ask).await } else { plain(&broker, agent).await }
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
struct Ask {
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
            session: optional(headers, header::SESSION)?,
            holds: optional(headers, header::HOLDS)?,
            wait: preferred_wait(headers).map(|seconds| seconds.min(LONGEST_WAIT_SECONDS)),
        })
    }
}

async fn poll(
    broker: &Arc<Broker>,
    caller: &Caller,
    agent: AgentId,
    headers: &HeaderMap,
    ask: &Ask,
) -> Result<Response, ApiError> {
    if matches!(caller, Caller::Agent(_)) {
        broker.presence.seen(agent);
    }
    let first = current(broker, caller, agent, ask)?;
    if !has_already(headers, &first.etag) {
        return Ok(answer(broker, &first, ask, true));
    }
    let deadline = Instant::now() + Duration::from_secs(ask.wait.unwrap_or_default());
    let waiting = broker.index.wait(agent, &first.etag);
    loop {
        // Looked at after registering, and again at each wake: the answer, and the right to have it.
        let now = current(broker, caller, agent, ask)?;
        if now.etag != first.etag {
            return Ok(answer(broker, &now, ask, true));
        }
        tokio::select! {
            () = waiting.woken() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(answer(broker, &now, ask, false)),
            () = broker.draining.cancelled() => return Ok(answer(broker, &now, ask, false)),
        }
    }
}

/// The answer as it is now, if the caller may still have it.
fn current(broker: &Broker, caller: &Caller, agent: AgentId, ask: &Ask) -> Result<Arc<Answer>, ApiError> {
    {
        let picture = broker.index.picture();
        let facts = picture.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        if let Caller::Agent(caller) = caller
            && facts.public_key[..] != caller.public_key[..]
        {
            return Err(ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"));
        }
        if let Some(code) = ask.session.and_then(|session| refusal(facts.session, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        if ask.holds.is_some_and(|holds| holds != facts.holds_digest) {
            return Err(ApiError::new(ErrorCode::BRK3001, "the broker knows another list of held stacks"));
        }
    }
    broker.index.answer(agent).ok_or_else(|| ApiError::not_found("agent"))
}

fn answer(broker: &Broker, answer: &Answer, ask: &Ask, changed: bool) -> Response {
    let mut response = if changed {
        Body::from(answer.bytes.clone()).into_response()
    } else {
        StatusCode::NOT_MODIFIED.into_response()
    };
    let headers = response.headers_mut();
    if changed {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ENVELOPE_MEDIA_TYPE));
    }
    headers.insert(ETAG, text(&answer.etag));
    headers.insert(header::POSITION, text(&broker.index.position().to_string()));
    headers.insert(header::PROTOCOL, HeaderValue::from(PROTOCOL_VERSION));
    headers.insert(header::SPREAD, HeaderValue::from(broker.reconnect_spread()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization, brokkr-holds"));
    if let Some(seconds) = ask.wait {
        headers.insert("preference-applied", text(&format!("wait={seconds}")));
    }
    response
}

/// The array of the contract. Contents come from the database, through the cache.
async fn plain(broker: &Broker, agent: AgentId) -> Result<Response, ApiError> {
    let mut wanted: Vec<SequenceId> = {
        let picture = broker.index.picture();
        let agent = picture.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        let objects = picture.candidates(agent).filter_map(|stack| wanted(agent, stack));
        match agent.status {
            AgentStatus::Inactive => Vec::new(),
            AgentStatus::Active => objects
                .filter(|wanted| wanted.removal != Some(Removal::Untargeted))
                .map(|wanted| wanted.sequence_id())
                .collect(),
        }
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
    headers.insert(header::POSITION, text(&broker.index.position().to_string()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
    Ok(response)
}

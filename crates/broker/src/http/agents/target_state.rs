//! What an agent should have. The envelope is looked up in the index, or waited for; no SQL on that path.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::objects::TargetObject;
use brokkr_api::protocol::{
    ENVELOPE_MEDIA_TYPE, LONGEST_WAIT_SECONDS, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Session,
    WANTS_CONTENTS, header,
};
use brokkr_api::{AgentId, ErrorCode, Position, SequenceId};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::access::Caller;
use crate::access::origin::Origin;
use crate::broker::Broker;
use crate::domain::envelope::{Answer, wanted};
use crate::domain::session::refusal;
use crate::http::error::ApiError;
use crate::http::headers::{has_already, optional, position, preferred_wait, text};
use crate::index::Waiting;
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
    Extension(origin): Extension<Arc<Origin>>,
    request: Request,
) -> Result<Response, ApiError> {
    // Headers taken, not copied: fifty thousand polls wait.
    let headers = request.into_parts().0.headers;
    let ask = Ask::read(&headers)?;
    let envelope = headers.get_all(ACCEPT).iter().any(|accept| {
        accept
            .as_bytes()
            .windows(ENVELOPE_MEDIA_TYPE.len())
            .any(|part| part == ENVELOPE_MEDIA_TYPE.as_bytes())
    });
    if envelope {
        return poll(&broker, &caller, &agent, headers, &ask).await;
    }
    Box::pin(broker.catch_up_for(&caller, ask.position)).await?;
    if let Caller::Token(_) = caller {
        // With contents, and so with whatever Secrets are among them.
        Box::pin(broker.note_secrets_read(&caller, &origin)).await?;
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

/// Answers at once, or waits for something else than the caller has.
///
/// This replica's answers may show what its horizon has not passed yet. Whoever has exactly the answer of now
/// need not wait for that: it is told nothing until something changes. Everything else, refusals too, is told
/// only by a replica whose horizon has reached what the caller has seen.
async fn poll(
    broker: &Arc<Broker>,
    caller: &Caller,
    named: &str,
    headers: HeaderMap,
    ask: &Ask,
) -> Result<Response, ApiError> {
    let mut headers = Some(headers);
    if let Caller::Agent(agent) = caller {
        broker.presence.seen(agent.id, ask.wait);
    }
    let deadline = Instant::now() + Duration::from_secs(ask.wait.unwrap_or_default());
    // The tag of what the caller has, once it is known to be the answer.
    let mut has: Option<String> = None;
    let mut waiting: Option<Waiting> = None;
    // Who does not wait is answered by the first look.
    let mut over = ask.wait.unwrap_or_default() == 0;
    loop {
        // Looked at after registering, and again at each wake: the answer, and the right to have it.
        let vouched = ask.position.is_none_or(|position| broker.index.position() >= position);
        if let Caller::Agent(agent) = caller
            && !Box::pin(broker.assertions.still(&broker.index, &broker.pool, agent)).await?
        {
            return Err(ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"));
        }
        let now = current(broker, named, ask);
        unsettled(broker, caller, ask, now.as_ref().ok())?;
        let same = now.as_ref().is_ok_and(|now| {
            let etag = &now.answer.etag;
            let same = match (&has, &headers) {
                (Some(has), _) => has == etag,
                (None, headers) => headers.as_ref().is_some_and(|headers| has_already(headers, etag)),
            };
            same && ask.position.is_none_or(|position| now.position >= position)
        });
        if !same && !vouched {
            Box::pin(broker.catch_up_for(caller, ask.position)).await?;
            continue;
        }
        let now = now?;
        // Somebody waits for a content of this agent: it is not kept in a long poll.
        let wants = matches!(caller, Caller::Agent(agent) if broker.standing.asks_of(agent.id).content);
        if !same || over || wants {
            let mut answer = answer(broker, &now, ask, !same);
            if wants {
                answer.headers_mut().insert(header::WANTS, HeaderValue::from_static(WANTS_CONTENTS));
            }
            return Ok(answer);
        }
        has.get_or_insert_with(|| now.answer.etag.clone());
        headers = None;
        let Some(waiting) = &waiting else {
            waiting = Some(broker.index.wait(now.agent));
            continue;
        };
        over = tokio::select! {
            () = waiting.woken() => {
                broker.metrics.woken();
                false
            }
            () = tokio::time::sleep_until(deadline) => true,
            () = broker.sent_away() => true,
        };
    }
}

/// Since a restore: an agent that was asked tells first what it holds; on hold, nobody is told anything new. Comes
/// before the question who is behind, because then everybody may be.
///
/// Asked after the answer was made: an answer of a raised epoch counts only where it is known what was asked with it.
fn unsettled(broker: &Broker, caller: &Caller, ask: &Ask, now: Option<&Current>) -> Result<(), ApiError> {
    let Caller::Agent(caller) = caller else { return Ok(()) };
    let asks = broker.standing.asks_of(caller.id);
    if let Some(now) = now.filter(|now| now.position.epoch > asks.epoch) {
        return Err(broker.behind(now.position));
    }
    if !asks.held && !asks.list {
        return Ok(());
    }
    let (session, holds_digest) = {
        let picture = broker.index.picture();
        let facts = picture.agent(caller.id).ok_or_else(|| ApiError::not_found("agent"))?;
        (facts.session, facts.holds_digest)
    };
    if let Some(code) = ask.session.and_then(|claimed| refusal(session, claimed)) {
        return Err(ApiError::new(code, code.title()));
    }
    if asks.list || ask.holds.is_some_and(|holds| holds != holds_digest) {
        let detail = "all agents are asked what they hold, because the database was restored";
        return Err(ApiError::new(ErrorCode::BRK3001, detail));
    }
    Err(broker.held())
}

/// An answer and from when it is.
struct Current {
    agent: AgentId,
    answer: Arc<Answer>,
    position: Position,
}

/// The answer as it is now, if the session may still have it.
fn current(broker: &Broker, named: &str, ask: &Ask) -> Result<Current, ApiError> {
    let agent = resolve(broker, named)?;
    {
        let picture = broker.index.picture();
        let facts = picture.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        if let Some(code) = ask.session.and_then(|session| refusal(facts.session, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        if ask.holds.is_some_and(|holds| holds != facts.holds_digest) {
            return Err(ApiError::new(ErrorCode::BRK3001, "the broker knows another list of held stacks"));
        }
    }
    let (answer, position) = broker.index.answer(agent).ok_or_else(|| ApiError::not_found("agent"))?;
    Ok(Current { agent, answer, position })
}

fn answer(broker: &Broker, now: &Current, ask: &Ask, changed: bool) -> Response {
    let mut response = if changed {
        Body::from(now.answer.bytes.clone()).into_response()
    } else {
        StatusCode::NOT_MODIFIED.into_response()
    };
    let headers = response.headers_mut();
    if changed {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ENVELOPE_MEDIA_TYPE));
    }
    headers.insert(ETAG, text(&now.answer.etag));
    headers.insert(header::POSITION, text(&now.position.to_string()));
    headers.insert(header::PROTOCOL, HeaderValue::from(PROTOCOL_VERSION));
    headers.insert(header::SPREAD, HeaderValue::from(broker.reconnect_spread()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization, brokkr-holds"));
    if let Some(seconds) = broker.stale() {
        headers.insert(header::STALE, HeaderValue::from(seconds));
    }
    if let Some(seconds) = ask.wait {
        headers.insert("preference-applied", text(&format!("wait={seconds}")));
    }
    response
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

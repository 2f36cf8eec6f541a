//! A poll: answered at once, or when there is something else than the caller has.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, PROTOCOL_VERSION, Want, header};
use brokkr_api::{AgentId, ErrorCode, Position};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::Ask;
use crate::access::Caller;
use crate::domain::envelope::Answer;
use crate::domain::session::refusal;
use crate::error::ApiError;
use crate::http::headers::{has_already, text};
use crate::index::Waiting;
use crate::state::Broker;

/// What the caller has.
pub enum Has {
    /// As it says.
    Told(HeaderMap),
    /// The tag, once it is known to be that of the answer. Headers take room while somebody waits.
    Tag(String),
}

impl Has {
    fn is(&self, etag: &str) -> bool {
        match self {
            Self::Told(headers) => has_already(headers, etag),
            Self::Tag(tag) => tag == etag,
        }
    }
}

/// Answers at once, or waits for something else than the caller has.
///
/// This replica's answers may show what its horizon has not passed yet. Whoever has exactly the answer of now
/// need not wait for that: it is told nothing until something changes. Everything else, refusals too, is told
/// only by a replica whose horizon has reached what the caller has seen.
pub async fn poll(
    broker: &Arc<Broker>,
    caller: &Caller,
    agent: AgentId,
    mut has: Has,
    ask: &Ask,
) -> Result<Response, ApiError> {
    if let Caller::Agent(agent) = caller {
        broker.presence.seen(agent.id, ask.wait);
    }
    let deadline = Instant::now() + Duration::from_secs(ask.wait.unwrap_or_default());
    let mut waiting: Option<Waiting> = None;
    // Who does not wait is answered by the first look.
    let mut over = ask.wait.unwrap_or_default() == 0;
    loop {
        // Looked at after registering, and again at each wake: the answer, and the right to have it.
        let vouched = ask.position.is_none_or(|position| broker.index.position() >= position);
        if let Caller::Agent(agent) = caller
            && !Box::pin(broker.access.assertions.still(&broker.index, &broker.pool, agent)).await?
        {
            return Err(ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"));
        }
        let now = current(broker, agent, ask);
        unsettled(broker, caller, ask, now.as_ref().ok())?;
        let same = now.as_ref().is_ok_and(|now| {
            has.is(&now.answer.etag) && ask.position.is_none_or(|position| now.position >= position)
        });
        if !same && !vouched {
            Box::pin(broker.catch_up_for(caller, ask.position)).await?;
            continue;
        }
        let now = now?;
        // Somebody waits for what this agent is to give: it is not kept in a long poll.
        let wants = matches!(caller, Caller::Agent(_)).then(|| wants(broker, agent)).flatten();
        if !same || over || wants.is_some() {
            let mut answer = answer(broker, &now, ask, !same);
            if let Some(wants) = wants {
                answer.headers_mut().insert(header::WANTS, text(&wants.to_string()));
            }
            return Ok(answer);
        }
        has = Has::Tag(now.answer.etag.clone());
        let Some(waiting) = &waiting else {
            waiting = Some(broker.index.wait(agent));
            continue;
        };
        over = tokio::select! {
            () = waiting.woken() => {
                broker.metrics.woken();
                false
            }
            () = tokio::time::sleep_until(deadline) => true,
            () = broker.shutdown.released() => true,
        };
    }
}

/// Since a restore: an agent that was asked tells first what it holds; on hold, nobody is told anything new. Comes
/// before the question who is behind, because then everybody may be.
///
/// Asked after the answer was made: an answer of a raised epoch counts only where it is known what was asked with it.
fn unsettled(broker: &Broker, caller: &Caller, ask: &Ask, now: Option<&Current>) -> Result<(), ApiError> {
    let Caller::Agent(caller) = caller else { return Ok(()) };
    let asks = broker.restore.for_agent(caller.id);
    if let Some(now) = now.filter(|now| now.position.epoch > asks.epoch) {
        return Err(broker.behind(now.position));
    }
    if !asks.held && !asks.must_report_holds {
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
    if asks.must_report_holds || ask.holds.is_some_and(|holds| holds != holds_digest) {
        let detail = "all agents are asked what they hold, because the database was restored";
        return Err(ApiError::new(ErrorCode::BRK3001, detail));
    }
    Err(broker.held())
}

/// What is wanted of the agent first.
fn wants(broker: &Broker, agent: AgentId) -> Option<Want> {
    broker.index.picture().agent(agent).is_some_and(|facts| facts.new_key_wanted).then_some(Want::Key)
}

/// An answer and from when it is.
struct Current {
    answer: Arc<Answer>,
    position: Position,
}

/// The answer as it is now, if the session may still have it.
fn current(broker: &Broker, agent: AgentId, ask: &Ask) -> Result<Current, ApiError> {
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
    Ok(Current { answer, position })
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

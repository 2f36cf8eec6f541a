//! A poll: answered at once, or when the envelope differs from the one that the caller has.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use brokkr_api::protocol::{Capabilities, Capability, ENVELOPE_MEDIA_TYPE, PROTOCOL_VERSION, Want, header};
use brokkr_api::{AgentId, ErrorCode, HistoryMark, Position, StackId};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use tokio::time::Instant;

use super::PollClaims;
use crate::access::Caller;
use crate::domain::envelope::EncodedEnvelope;
use crate::domain::session::refusal;
use crate::domain::targeting::reaches;
use crate::error::{ApiError, ApiResult};
use crate::http::headers::{has_already, own_capabilities, text};
use crate::index::Waiting;
use crate::state::Broker;

/// The tag of the envelope that the caller has.
pub enum KnownEtag {
    /// In the headers of the request.
    Headers(HeaderMap),
    /// Only the tag, once it is known to be the current one: headers would take memory while the poll waits.
    Etag(String),
}

impl KnownEtag {
    fn is(&self, etag: &str) -> bool {
        match self {
            Self::Headers(headers) => has_already(headers, etag),
            Self::Etag(tag) => tag == etag,
        }
    }
}

/// Responds at once, or waits for an envelope that differs from the caller's.
///
/// An envelope of this replica may already show changes above its horizon. A caller that has exactly this envelope
/// waits for the next change. Every other response, including refusals, needs a horizon at or above the caller's
/// position.
pub async fn poll(
    broker: &Arc<Broker>,
    caller: &Caller,
    agent: AgentId,
    mut known: KnownEtag,
    claims: &PollClaims,
) -> ApiResult {
    if let Caller::Agent(agent) = caller {
        broker.presence.seen(agent.id, claims.wait, claims.capabilities.has(Capability::Upgrade));
    }
    let deadline = Instant::now() + Duration::from_secs(claims.wait.unwrap_or_default());
    let (mut waiting, mut checked): (Option<Waiting>, Option<u64>) = (None, None);
    // Without a wait, the first pass responds.
    let mut over = claims.wait.unwrap_or_default() == 0;
    loop {
        // The envelope and the caller's key are checked again after registering as a waiter and at each
        // wake-up.
        // Once for each history, so that a poll that has waited for long is not looked up again when it is woken.
        let history = broker.history.restarts();
        if checked != Some(history) && !broker.is_known_history(claims.position) {
            Box::pin(broker.check_history(caller, claims.position)).await?;
        }
        checked = Some(history);
        let caught_up = claims.position.is_none_or(|shown| broker.index.position() >= shown.position);
        if let Caller::Agent(agent) = caller
            && !Box::pin(broker.access.assertions.is_still_valid(&broker.index, &broker.pool, agent)).await?
        {
            return Err(ApiError::new(ErrorCode::BRK1001, "the agent's key is no longer valid"));
        }
        let now = current(broker, agent, claims);
        check_restore_state(broker, caller, claims, now.as_ref().ok())?;
        let same = now.as_ref().is_ok_and(|now| {
            known.is(&now.envelope.etag) && claims.position.is_none_or(|shown| now.position >= shown.position)
        });
        if !same && !caught_up {
            Box::pin(broker.catch_up(caller, claims.position)).await?;
            continue;
        }
        let now = now?;
        // A request to the agent ends the long poll: an operator waits for it.
        let is_agent = matches!(caller, Caller::Agent(_));
        let wants = is_agent.then(|| wanted_of(broker, agent, claims.capabilities)).flatten();
        if !same || over || wants.is_some() {
            let mut answer = answer(broker, &now, claims, !same);
            if let Some(wants) = wants {
                answer.headers_mut().insert(header::WANTS, text(&wants.to_string()));
            }
            return Ok(answer);
        }
        known = KnownEtag::Etag(now.envelope.etag.clone());
        // A poll that waits must not keep the envelope: with many stacks, that would be most of its memory.
        drop(now);
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

/// After a restore, an agent first has to report what it holds; on hold, no agent gets anything new. Runs
/// before positions are compared, because after a restore every replica may be behind.
///
/// Called after the envelope was read: an envelope of a raised epoch counts only if the restore state of that epoch
/// is known.
fn check_restore_state(
    broker: &Broker,
    caller: &Caller,
    claims: &PollClaims,
    now: Option<&Current>,
) -> ApiResult<()> {
    let Caller::Agent(caller) = caller else { return Ok(()) };
    let state = broker.restore.for_agent(caller.id);
    if let Some(now) = now.filter(|now| now.position.epoch > state.epoch) {
        return Err(broker.behind(now.position));
    }
    if !state.held && !state.must_report_holds {
        return Ok(());
    }
    let (session, holds_digest) = {
        let snapshot = broker.index.snapshot();
        let facts = snapshot.agent(caller.id).ok_or_else(|| ApiError::not_found("agent"))?;
        (facts.session, facts.holds_digest)
    };
    if let Some(code) = claims.session.and_then(|claimed| refusal(session, claimed)) {
        return Err(ApiError::new(code, code.title()));
    }
    if state.must_report_holds || claims.holds.is_some_and(|holds| holds != holds_digest) {
        let detail = "the database was restored: report the stacks that this agent holds";
        return Err(ApiError::new(ErrorCode::BRK3001, detail));
    }
    Err(broker.held())
}

/// Returns what the broker requests from the agent, if the agent announced that it can do it. A key comes before an upgrade, so that the
/// new process begins with a key that stays valid.
fn wanted_of(broker: &Broker, agent: AgentId, capabilities: Capabilities) -> Option<Want> {
    let snapshot = broker.index.snapshot();
    let facts = snapshot.agent(agent)?;
    if facts.new_key_wanted && capabilities.has(Capability::KeyRotation) {
        return Some(Want::Key);
    }
    let is_offered = capabilities.has(Capability::Upgrade)
        && snapshot.wanted_upgrade(facts).is_some()
        && snapshot.may_upgrade_at(facts, Timestamp::now());
    is_offered.then_some(Want::Upgrade)
}

/// An envelope and its position.
struct Current {
    envelope: Arc<EncodedEnvelope>,
    position: Position,
    mark: HistoryMark,
}

/// Returns the current envelope if the session may still have it.
fn current(broker: &Broker, agent: AgentId, claims: &PollClaims) -> ApiResult<Current> {
    {
        let snapshot = broker.index.snapshot();
        let facts = snapshot.agent(agent).ok_or_else(|| ApiError::not_found("agent"))?;
        if let Some(code) = claims.session.and_then(|session| refusal(facts.session, session)) {
            return Err(ApiError::new(code, code.title()));
        }
        if claims.holds.is_some_and(|holds| holds != facts.holds_digest) {
            return Err(ApiError::new(ErrorCode::BRK3001, "the broker's list of the agent's stacks differs"));
        }
        // A claim that did not count begins to count when the agent makes it again as a target.
        let reaches_now = |stack: &StackId| snapshot.stack(*stack).is_some_and(|stack| reaches(facts, stack));
        if claims.holds.is_some() && facts.unconfirmed.iter().any(reaches_now) {
            let detail = "a stack that this agent has targets it again";
            return Err(ApiError::new(ErrorCode::BRK3001, detail));
        }
    }
    let (envelope, (position, mark)) =
        broker.index.envelope(agent).ok_or_else(|| ApiError::not_found("agent"))?;
    Ok(Current { envelope, position, mark })
}

fn answer(broker: &Broker, now: &Current, claims: &PollClaims, changed: bool) -> Response {
    let mut response = if changed {
        Body::from(now.envelope.bytes.clone()).into_response()
    } else {
        StatusCode::NOT_MODIFIED.into_response()
    };
    let headers = response.headers_mut();
    if changed {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(ENVELOPE_MEDIA_TYPE));
    }
    headers.insert(ETAG, text(&now.envelope.etag));
    headers.insert(header::POSITION, broker.access.positions.header_of_index((now.position, now.mark)));
    headers.insert(header::PROTOCOL, HeaderValue::from(PROTOCOL_VERSION));
    headers.insert(header::CAPABILITIES, own_capabilities());
    headers.insert(header::SPREAD, HeaderValue::from(broker.reconnect_spread()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization, brokkr-holds"));
    if let Some(seconds) = broker.stale() {
        headers.insert(header::STALE, HeaderValue::from(seconds));
    }
    if let Some(seconds) = claims.wait {
        headers.insert("preference-applied", text(&format!("wait={seconds}")));
    }
    response
}

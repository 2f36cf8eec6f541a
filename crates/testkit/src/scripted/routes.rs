//! The endpoints that an agent calls.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use brokkr_api::agents::{Holds, OpenSession, OpenedSession, RegisterAgent, RegisteredAgent, SessionVerdict};
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{Capabilities, Session, YAML_MEDIA_TYPE, header, holds_digest, same_etag};
use brokkr_api::report::{ReportBatch, ReportReceipt};
use brokkr_api::{AgentId, ErrorCode, Position, PositionToken, SequenceId};
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, IF_NONE_MATCH};
use tokio::sync::watch;

use super::Script;
use super::lie::PollAnswer;

type Shared = State<Arc<watch::Sender<Script>>>;

pub fn router(script: Arc<watch::Sender<Script>>) -> Router {
    let own = Router::new()
        .route("/agents/{id}/session", post(open_session))
        .route("/agents/{id}/sessions", post(open_session))
        .route("/agents/{id}/holds", put(put_holds))
        .route("/agents/{id}/target-state", get(target_state))
        .route("/agents/{id}/reports", post(take_reports))
        .route("/deployment-objects/{sequence}", get(deployment_object))
        .layer(from_fn(authenticated));
    let api = Router::new().route("/agents/register", post(register)).merge(own);
    Router::new().nest("/api/v1", api).with_state(script)
}

/// Requires a bearer token, without checking it.
async fn authenticated(request: Request, next: Next) -> Response {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if bearer.is_some_and(|value| value.starts_with("Bearer ")) {
        return next.run(request).await;
    }
    refuse(ErrorCode::BRK1001)
}

fn refuse(code: ErrorCode) -> Response {
    PollAnswer::problem(code).respond()
}

async fn register(State(script): Shared, Json(registration): Json<RegisterAgent>) -> Response {
    let truth = &script.borrow().truth;
    if registration.token != truth.join_token {
        return refuse(ErrorCode::BRK1003);
    }
    let name = "scripted".parse().expect("a name");
    Json(RegisteredAgent { agent_id: truth.agent, name, installation_id: truth.installation }).into_response()
}

async fn open_session(
    State(script): Shared,
    Path(id): Path<AgentId>,
    Json(opening): Json<OpenSession>,
) -> Response {
    if id != script.borrow().truth.agent {
        return refuse(ErrorCode::BRK2001);
    }
    let (mut verdict, mut count) = (SessionVerdict::Superseded, 0);
    script.send_modify(|script| {
        if opening.count >= script.truth.session {
            script.truth.session = opening.count;
            verdict = SessionVerdict::Serves;
        }
        count = script.truth.session;
    });
    let capabilities = [(header::CAPABILITIES, Capabilities::own().to_string())];
    (capabilities, Json(OpenedSession { verdict, count })).into_response()
}

async fn put_holds(State(script): Shared, Path(id): Path<AgentId>, Json(holds): Json<Holds>) -> Response {
    if id != script.borrow().truth.agent {
        return refuse(ErrorCode::BRK2001);
    }
    let mut position = Position::default();
    script.send_modify(|script| position = script.truth.hold(holds.stacks));
    ([(header::POSITION, position.to_string())], Json(serde_json::json!({}))).into_response()
}

async fn take_reports(
    State(script): Shared,
    Path(id): Path<AgentId>,
    Json(batch): Json<ReportBatch>,
) -> Response {
    if id != script.borrow().truth.agent {
        return refuse(ErrorCode::BRK2001);
    }
    let mut receipt = ReportReceipt::default();
    script.send_modify(|script| {
        for report in batch.reports {
            if script.reports.iter().any(|known| known.id == report.id) {
                receipt.duplicates.push(report.id);
            } else {
                receipt.accepted.push(report.id);
                script.reports.push(report);
            }
        }
    });
    Json(receipt).into_response()
}

async fn deployment_object(State(script): Shared, Path(sequence): Path<SequenceId>) -> Response {
    let mut response = None;
    script.send_modify(|script| {
        let Some(content) = script.truth.content(sequence) else { return };
        response = Some(match script.content_lies.get(&sequence) {
            Some(lie) => lie.respond(content),
            None => ([(CONTENT_TYPE, YAML_MEDIA_TYPE)], content.to_owned()).into_response(),
        });
        *script.handed_out.entry(sequence).or_default() += 1;
    });
    response.unwrap_or_else(|| refuse(ErrorCode::BRK2001))
}

/// The parameters of a poll.
struct PollParameters {
    etag: Option<String>,
    wait: Duration,
    position: PositionToken,
    holds: Option<Checksum>,
    session: i64,
}

impl PollParameters {
    fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let seconds = text("prefer").and_then(|prefer| prefer.strip_prefix("wait=")?.parse().ok());
        Self {
            etag: text(IF_NONE_MATCH.as_str()).map(str::to_owned),
            wait: Duration::from_secs(seconds.unwrap_or_default()),
            position: text(header::POSITION).and_then(|value| value.parse().ok()).unwrap_or_default(),
            holds: text(header::HOLDS).and_then(|value| value.parse().ok()),
            session: text(header::SESSION)
                .and_then(|value| value.parse::<Session>().ok())
                .map_or(0, |session| session.count),
        }
    }

    fn has(&self, answer: &PollAnswer) -> bool {
        matches!((&self.etag, &answer.etag), (Some(has), Some(current)) if same_etag(has, current))
    }
}

impl Script {
    /// Returns the current answer.
    fn answer(&self, poll: &PollParameters) -> PollAnswer {
        let truth = &self.truth;
        if let Some(lie) = self.lie {
            return lie.forge(truth);
        }
        let known = truth.holds.as_ref().map(|holds| holds_digest(holds.iter().copied()));
        if poll.session < truth.session {
            PollAnswer::problem(ErrorCode::BRK1004)
        } else if poll.position.position > truth.position {
            PollAnswer::problem(ErrorCode::BRK1012)
        } else if known.is_none() || known != poll.holds {
            PollAnswer::problem(ErrorCode::BRK3001)
        } else {
            PollAnswer::truth(truth)
        }
    }
}

/// Handles a long poll: an answer that the agent does not have yet is sent at once.
async fn target_state(State(script): Shared, Path(id): Path<AgentId>, headers: HeaderMap) -> Response {
    if id != script.borrow().truth.agent {
        return refuse(ErrorCode::BRK2001);
    }
    let poll = PollParameters::read(&headers);
    script.send_modify(|script| {
        script.asked = poll.etag.clone().map(|etag| (etag, script.truths));
    });
    let mut watched = script.subscribe();
    let news = watched.wait_for(|script| !poll.has(&script.answer(&poll)));
    // After a timeout the answer is unchanged, which results in 304.
    let _ = tokio::time::timeout(poll.wait, news).await.is_ok();
    let mut response = None;
    script.send_modify(|script| {
        let answer = script.answer(&poll);
        let known = poll.has(&answer);
        match script.lie {
            // A wrong answer is sent in full each time.
            Some(lie) => *script.sent.entry(lie).or_default() += 1,
            None => script.truths += 1,
        }
        response = Some(if known && script.lie.is_none() { answer.not_modified() } else { answer.respond() });
    });
    response.expect("made just above")
}

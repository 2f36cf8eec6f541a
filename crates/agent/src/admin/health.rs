//! Liveness and readiness of the agent.
//!
//! An agent stays alive and ready while the broker is unreachable: it keeps and repairs the last known state,
//! and a restart would not help. The problem is listed as a cause instead. The format is that of the broker's
//! `/readyz`.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::reconcile::counts::Counts;

/// A poll waits for at most five minutes, so a broker that has not responded for six is unreachable.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(360);

/// The health of the agent.
pub(super) enum Health {
    /// Not running yet; with what the agent has to do first.
    Starting(&'static str),
    /// The reconciler does not answer.
    Stuck,
    /// With the counts of the reconciler, the time since the last response of the broker, and whether this version is confirmed.
    Running { counts: Box<Counts>, silence: Duration, is_confirmed: bool },
}

impl Health {
    /// Responds whether the agent is alive; if not, it must be restarted. An agent that waits for the broker
    /// or the cluster is alive.
    pub(super) fn livez(&self) -> Response<Full<Bytes>> {
        self.respond(!matches!(self, Self::Stuck))
    }

    /// Responds whether the agent is ready: it has joined, and reconciles its target state.
    pub(super) fn readyz(&self) -> Response<Full<Bytes>> {
        self.respond(self.is_ready())
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Running { counts, is_confirmed: true, .. }
            if counts.has_target_state && counts.writes_suspended.is_none())
    }

    fn respond(&self, ok: bool) -> Response<Full<Bytes>> {
        let causes = self.causes();
        let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let causes: Vec<_> =
            causes.iter().map(|(part, detail)| json!({"part": part, "detail": detail})).collect();
        let body = json!({"whole": causes.is_empty(), "causes": causes});
        respond(status, "application/json", body.to_string())
    }

    /// Returns the components with problems, and the problems.
    fn causes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Starting(what) => vec![("start", format!("not started yet: it must {what} first"))],
            Self::Stuck => vec![("reconciler", "does not respond; restart this agent".to_owned())],
            Self::Running { counts, silence, is_confirmed } => {
                let mut causes = running(counts, *silence);
                if !is_confirmed {
                    causes.push(("upgrade", "this version is not confirmed yet".to_owned()));
                }
                causes
            }
        }
    }
}

fn running(counts: &Counts, silence: Duration) -> Vec<(&'static str, String)> {
    let mut causes = Vec::new();
    if let Some(why) = counts.writes_suspended {
        causes.push(("session", format!("writes are suspended: {why}")));
    }
    if !counts.has_target_state {
        causes.push(("broker", "has not sent a target state yet".to_owned()));
    } else if silence > UNREACHABLE_AFTER {
        let silence = silence.as_secs();
        causes.push((
            "broker",
            format!("not reachable for {silence} s; stacks are kept, and drift is reverted"),
        ));
    } else if !counts.active {
        causes.push(("broker", "this agent is not ACTIVE; the cluster is not changed".to_owned()));
    }
    if counts.unsynced > 0 {
        let unsynced = counts.unsynced;
        causes.push(("watches", format!("{unsynced} have not listed their objects yet")));
    }
    causes
}

pub(super) fn respond(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}

//! Is the process alive, and is it at work.
//!
//! A broker that is away makes an agent neither dead nor unready: it keeps and repairs what is there, and starting it
//! again would gain nothing. It is told as a cause of trouble instead, in the words and the form of the broker's own
//! `/readyz`.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::respond;
use crate::reconcile::figures::Figures;

/// Polls wait for up to five minutes: a broker that was silent for longer is away.
const AWAY: Duration = Duration::from_secs(360);

/// How the agent is.
pub(super) enum Health {
    /// What it waits for.
    Starting(&'static str),
    /// The reconciler does not answer.
    Stuck,
    /// What the reconciler says, and how long the broker has been silent.
    Running(Box<Figures>, Duration),
}

impl Health {
    /// Alive: if not, it has to be started again. Waiting for broker or cluster is no reason to.
    pub(super) fn livez(&self) -> Response<Full<Bytes>> {
        self.told(!matches!(self, Self::Stuck))
    }

    /// Ready: it has joined, and what it should have is being carried out.
    pub(super) fn readyz(&self) -> Response<Full<Bytes>> {
        self.told(self.is_ready())
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Running(figures, _) if figures.aimed && figures.stood_down.is_none())
    }

    fn told(&self, well: bool) -> Response<Full<Bytes>> {
        let causes = self.causes();
        let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let causes: Vec<_> =
            causes.iter().map(|(part, detail)| json!({"part": part, "detail": detail})).collect();
        let body = json!({"whole": causes.is_empty(), "causes": causes});
        respond(status, "application/json", body.to_string())
    }

    /// The part that is in trouble, and what that means.
    fn causes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Starting(what) => vec![("start", format!("not at work yet: it has to {what} first"))],
            Self::Stuck => vec![("reconciler", "does not answer: start this agent again".to_owned())],
            Self::Running(figures, silence) => running(figures, *silence),
        }
    }
}

fn running(figures: &Figures, silence: Duration) -> Vec<(&'static str, String)> {
    let mut causes = Vec::new();
    if let Some(why) = figures.stood_down {
        causes.push(("session", format!("nothing is written: {why}")));
    }
    if !figures.aimed {
        causes.push(("broker", "has not said yet what should be here".to_owned()));
    } else if silence > AWAY {
        let silence = silence.as_secs();
        causes.push(("broker", format!("not heard for {silence} s; what is there is kept and repaired")));
    } else if !figures.active {
        causes.push(("broker", "does not have this agent ACTIVE: nothing is changed here".to_owned()));
    }
    if figures.unsynced > 0 {
        let unsynced = figures.unsynced;
        causes.push(("watches", format!("{unsynced} do not know what is there")));
    }
    causes
}

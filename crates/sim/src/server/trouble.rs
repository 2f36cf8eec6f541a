//! Answers of an API server in trouble, or of something in front of it. They say nothing about the request, which was not
//! carried out and may succeed at the next attempt.

use std::fmt;
use std::time::Duration;

use brokkr_agent::execute::classify;
use brokkr_agent::model::{Failure, FailureClass, Step, StepResult};
use brokkr_api::reason::Reason;
use serde_json::json;

use super::request::refusal;

/// A status code, with the seconds of its Retry-After.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    code: u16,
    reason: &'static str,
    retry_after: Option<u64>,
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        self.retry_after.map_or(Ok(()), |seconds| write!(f, ", Retry-After {seconds}"))
    }
}

const fn trouble(code: u16, reason: &'static str, retry_after: Option<u64>) -> Trouble {
    Trouble { code, reason, retry_after }
}

impl Trouble {
    /// An expired token, a slow request, a lost continuation, overload with and without a hint, and failures of the
    /// server, of a proxy, of its storage.
    pub const ALL: [Self; 8] = [
        trouble(401, "Unauthorized", None),
        trouble(408, "Timeout", None),
        trouble(410, "Expired", None),
        trouble(429, "TooManyRequests", None),
        trouble(429, "TooManyRequests", Some(2)),
        trouble(500, "InternalError", None),
        trouble(502, "", None),
        trouble(504, "Timeout", None),
    ];

    /// Returns the answer to this step, classified by the agent's own code.
    #[must_use]
    pub fn answer(self, step: &Step) -> StepResult {
        StepResult::Failed(match step {
            // Requests to the broker, and to the agent's own objects: every failure is transient there.
            Step::Hold => refusal(FailureClass::Transient, Reason::BrokerUnreachable),
            Step::Fetch | Step::FetchEarlier { .. } | Step::ForgetContents { .. } => {
                refusal(FailureClass::Transient, Reason::FetchFailed)
            }
            Step::WriteRecord(_) | Step::DropRecord => {
                refusal(FailureClass::Transient, Reason::RecordNotWritten)
            }
            // Only lists, which have continuations, can expire.
            Step::ListContained { .. } => self.classified(),
            _ if self.code == 410 => trouble(504, "Timeout", None).classified(),
            _ => self.classified(),
        })
    }

    fn classified(self) -> Failure {
        let body = match self.reason {
            "" => "<html><body>Bad Gateway</body></html>".to_owned(),
            reason => json!({"kind": "Status", "code": self.code, "reason": reason, "message": "try again"})
                .to_string(),
        };
        let code = self.code.try_into().expect("a status code");
        classify::refusal(code, body.as_bytes(), self.retry_after.map(Duration::from_secs), false)
    }
}

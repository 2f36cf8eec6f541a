//! Sending again what was lost, always under the same idempotency key: twice sent is once done.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::answer::Answer;
use crate::builder::Client;
use crate::error::ClientError;
use crate::exchange::Call;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Makes a write repeatable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    #[must_use]
    pub fn generate() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    /// A key of the caller's own, to be used again by a later run: 1 to 128 visible ASCII characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let good = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        good.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

type Notice = Arc<dyn Fn(Retry<'_>) + Send + Sync>;

/// How long lost requests are sent again. None by default: an agent has a rhythm of its own.
#[derive(Clone, Default)]
pub struct RetryPolicy {
    limit: Duration,
    notice: Option<Notice>,
}

/// One failure that is not the last word.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    pub error: &'a ClientError,
    /// Counts from 1.
    pub attempt: u32,
    pub pause: Duration,
    /// What is left until the call gives up.
    pub left: Duration,
}

impl RetryPolicy {
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn up_to(limit: Duration) -> Self {
        Self { limit, notice: None }
    }

    /// Tells of each failure before the pause, so that a person sees why it takes long.
    #[must_use]
    pub fn noticing(mut self, notice: impl Fn(Retry<'_>) + Send + Sync + 'static) -> Self {
        self.notice = Some(Arc::new(notice));
        self
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn tell(&self, retry: Retry<'_>) {
        if let Some(notice) = &self.notice {
            notice(retry);
        }
    }
}

impl std::fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RetryPolicy({:?})", self.limit)
    }
}

impl Client {
    /// Sends a call until it is answered, refused, or the policy's time is up.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer, ClientError> {
        let policy = self.retry_policy();
        let begun = Instant::now();
        let deadline = begun + policy.limit;
        let mut pause = FIRST_PAUSE;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.exchange(&call).await.and_then(Answer::accepted) {
                Ok(answer) => {
                    if let Some(position) = answer.position().filter(|_| call.is_write()) {
                        self.remember_written(position);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let wanted = error.retry_after().unwrap_or(pause).mul_f64(rand::random_range(0.75..1.25));
            if !error.is_worth_retrying() || wanted >= left {
                return Err(error.after_all(begun.elapsed()));
            }
            tracing::debug!(%error, attempt, "the call is sent again");
            policy.tell(Retry { error: &error, attempt, pause: wanted, left });
            tokio::time::sleep(wanted).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

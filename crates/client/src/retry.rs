//! Retries with the same idempotency key, so that a repeated request has no further effect.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::time::Instant;
use uuid::Uuid;

use crate::builder::Client;
use crate::error::{ClientError, Result};
use crate::exchange::Call;
use crate::response::Response;

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

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

type Notice = Arc<dyn Fn(Retry<'_>) + Send + Sync>;

/// How long failed requests are retried. By default they are not retried, because an agent has its own
/// schedule.
#[derive(Clone, Default)]
pub struct RetryPolicy {
    limit: Duration,
    notice: Option<Notice>,
}

/// A failure that is retried.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    pub error: &'a ClientError,
    /// Counts from 1.
    pub attempt: u32,
    pub pause: Duration,
    /// The time left until the call gives up.
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

    /// Calls `notice` for each failure before the pause, so that a person sees the reason for the delay.
    #[must_use]
    pub fn noticing(mut self, notice: impl Fn(Retry<'_>) + Send + Sync + 'static) -> Self {
        self.notice = Some(Arc::new(notice));
        self
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn notify(&self, retry: Retry<'_>) {
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
    /// Sends a call until it succeeds, is refused, or the policy's time is up.
    pub(crate) async fn send(&self, call: Call) -> Result<Response> {
        let policy = self.retry_policy();
        let begun = Instant::now();
        let deadline = begun + policy.limit;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times()
            .build();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.exchange(&call).await.and_then(Response::accepted) {
                Ok(answer) => {
                    if let Some(position) = answer.position().filter(|_| call.is_write()) {
                        self.remember_written(position);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
            let pause = error.retry_after().unwrap_or(pause).mul_f64(rand::random_range(0.75..1.25));
            if !error.is_worth_retrying() || pause >= left {
                return Err(error.after_all(begun.elapsed()));
            }
            tracing::debug!(%error, attempt, "request failed; retrying");
            policy.notify(Retry { error: &error, attempt, pause, left });
            tokio::time::sleep(pause).await;
        }
    }
}

//! A poll that got "not modified" and is repeated on the same connection, byte for byte.
//!
//! An idle fleet sends nothing else. The same bytes come from the same agent with the same claims, which need not be
//! parsed again. Their validity is checked each time as for the first poll: expiry of the assertion, key, session,
//! holds and envelope. Any response but "not modified" takes the full path.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use axum::response::Response;
use http::{Method, StatusCode};
use jiff::Timestamp;

use crate::access::Caller;
use crate::access::caller::AgentCaller;
use crate::access::limits::{Allowance, Bucket};
use crate::http::agents::target_state::poll::{KnownEtag, poll};
use crate::http::agents::target_state::{PollClaims, ROUTE};
use crate::state::Broker;
use crate::state::long_poll::RepeatPoll;

/// The parsed poll.
pub struct RepeatedPoll {
    broker: Arc<Broker>,
    caller: Caller,
    allowance: Allowance,
    claims: PollClaims,
    etag: String,
}

impl RepeatedPoll {
    pub(super) async fn new(
        broker: Arc<Broker>,
        caller: AgentCaller,
        claims: PollClaims,
        etag: String,
    ) -> Self {
        let caller = Caller::Agent(caller);
        let allowance = broker.access.limits.allowance(Bucket::Polling, &caller).await;
        Self { broker, caller, allowance, claims, etag }
    }
}

#[async_trait]
impl RepeatPoll for RepeatedPoll {
    async fn answer(&self) -> Option<Response> {
        let Caller::Agent(agent) = &self.caller else { return None };
        let started = Instant::now();
        if Timestamp::now().as_second() >= agent.until || self.allowance.check().is_err() {
            return None;
        }
        let known = KnownEtag::Etag(self.etag.clone());
        let answer = poll(&self.broker, &self.caller, agent.id, known, &self.claims).await.ok()?;
        if answer.status() != StatusCode::NOT_MODIFIED {
            return None;
        }
        self.broker.metrics.answered(ROUTE, &Method::GET, answer.status(), started.elapsed());
        Some(answer)
    }
}

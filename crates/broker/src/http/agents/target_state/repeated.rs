//! A poll that was answered with "nothing new" and comes again on its connection, word for word.
//!
//! A fleet at rest does nothing else. Whoever sends the same head as before is the same agent with the same claims: what
//! was read of it need not be read again. Whether it is still right is looked at each time, as for the first one: the
//! assertion's end, the agent's key, session, list of holds and answer. Anything but "nothing new" goes the whole way.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use axum::response::Response;
use http::{Method, StatusCode};
use jiff::Timestamp;

use crate::access::Caller;
use crate::access::caller::AgentCaller;
use crate::access::limits::{Allowance, Bucket};
use crate::http::agents::target_state::poll::{Has, poll};
use crate::http::agents::target_state::{Ask, ROUTE};
use crate::state::Broker;
use crate::state::long_poll::RepeatPoll;

/// What is known of the poll.
pub struct RepeatedPoll {
    broker: Arc<Broker>,
    caller: Caller,
    allowance: Allowance,
    ask: Ask,
    etag: String,
}

impl RepeatedPoll {
    pub(super) async fn new(broker: Arc<Broker>, caller: AgentCaller, ask: Ask, etag: String) -> Self {
        let caller = Caller::Agent(caller);
        let allowance = broker.access.limits.allowance(Bucket::Polling, &caller).await;
        Self { broker, caller, allowance, ask, etag }
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
        let has = Has::Tag(self.etag.clone());
        let answer = poll(&self.broker, &self.caller, agent.id, has, &self.ask).await.ok()?;
        if answer.status() != StatusCode::NOT_MODIFIED {
            return None;
        }
        self.broker.metrics.answered(ROUTE, &Method::GET, answer.status(), started.elapsed());
        Some(answer)
    }
}

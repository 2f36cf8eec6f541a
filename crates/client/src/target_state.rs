//! The target state: the agent's long poll.
//!
//! A response is accepted only if it is complete, for this agent of this installation, and not older than what the agent has
//! seen. Everything else is an error, and an error changes nothing in a cluster.

use std::time::Duration;

use brokkr_api::envelope::Envelope;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{CATCH_UP_SECONDS, ENVELOPE_MEDIA_TYPE, Session, Want, header, same_etag};
use brokkr_api::{AgentId, ErrorCode, PositionToken};
use http::header::{CACHE_CONTROL, IF_NONE_MATCH};
use http::{HeaderName, StatusCode};

use crate::builder::Client;
use crate::error::{ClientError, Result};
use crate::response::{InvalidResponse, Response};

/// Time for a response in addition to the requested wait.
const GRACE: Duration = Duration::from_secs(15 + CATCH_UP_SECONDS);

/// One poll of the target state.
#[derive(Clone, Debug)]
pub struct PollRequest {
    /// The highest position seen so far.
    pub position: PositionToken,
    /// See [`brokkr_api::protocol::holds_digest`].
    pub holds: Checksum,
    pub session: Session,
    /// The tag of the last envelope; without it the broker responds at once.
    pub etag: Option<String>,
    /// How long the broker may wait for a change.
    pub wait: Duration,
}

/// The response to a poll. `spread` is the time over which to spread reconnects, if the broker sent it.
#[derive(Clone, Debug)]
pub enum Poll {
    NotModified {
        position: PositionToken,
        spread: Option<Duration>,
        /// An additional request of the broker.
        wants: Option<Want>,
    },
    Changed {
        envelope: Box<Envelope>,
        etag: String,
        position: PositionToken,
        spread: Option<Duration>,
        wants: Option<Want>,
    },
    /// The broker does not know the agent's stacks: send the list, then poll again.
    HoldsWanted,
    /// The replica is behind what the agent has seen: poll again, possibly another replica.
    Behind { retry_after: Option<Duration>, spread: Option<Duration> },
    /// A newer session is active: stop writing.
    Superseded,
    /// Another process has the same session count: pause.
    Duplicated,
    /// The broker did not issue the position that the agent has seen: the agent keeps and repairs its stacks.
    NotIssued,
    /// The broker is on hold: the agent keeps and repairs its stacks.
    OnHold { retry_after: Option<Duration> },
}

impl Client {
    /// Polls once, without retries.
    pub async fn target_state(&self, agent: AgentId, poll: &PollRequest) -> Result<Poll> {
        let path = ["agents", &agent.to_string(), "target-state"];
        let mut call = self
            .call(http::Method::GET, &path)
            .accept(ENVELOPE_MEDIA_TYPE)
            .header(CACHE_CONTROL, "no-store")
            .brokkr_header(header::POSITION, poll.position)
            .brokkr_header(header::HOLDS, poll.holds)
            .brokkr_header(header::SESSION, poll.session);
        if let Some(etag) = &poll.etag {
            call = call.header(IF_NONE_MATCH, etag);
        }
        if !poll.wait.is_zero() {
            call = call.header(HeaderName::from_static("prefer"), format!("wait={}", poll.wait.as_secs()));
        }
        call.time = poll.wait + GRACE;
        let answer = self.exchange(&call).await?;
        let spread = seconds_of(&answer, header::SPREAD);
        let answer = match answer.accepted() {
            Ok(answer) => answer,
            Err(error) => return refused(error, spread),
        };
        let wants = answer.text_of(header::WANTS).and_then(|want| want.parse().ok());
        let seen = poll.position.position;
        let position = answer.demand_position(seen)?;
        if position.position < seen {
            return Err(InvalidResponse::Older { found: position.position, seen }.at(&answer.url));
        }
        if answer.status == StatusCode::NOT_MODIFIED {
            // A 304 is only valid if the request had a tag.
            return match poll.etag {
                Some(_) => Ok(Poll::NotModified { position, spread, wants }),
                None => Err(InvalidResponse::EntityTag.at(&answer.url)),
            };
        }
        let (envelope, etag) = self.envelope_of(&answer, agent)?;
        // The agent fetches contents next. Another replica must catch up first: it may not know these
        // contents yet.
        self.remember_written(position);
        Ok(Poll::Changed { envelope: Box::new(envelope), etag, position, spread, wants })
    }

    fn envelope_of(&self, answer: &Response, agent: AgentId) -> Result<(Envelope, String)> {
        answer.demand_media_type(ENVELOPE_MEDIA_TYPE)?;
        let etag =
            answer.text_of("etag").ok_or_else(|| InvalidResponse::Header { name: "etag" }.at(&answer.url))?;
        let computed = Checksum::of(&answer.body).to_string();
        if !same_etag(etag, &computed) {
            return Err(InvalidResponse::EntityTag.at(&answer.url));
        }
        let envelope: Envelope = answer.parsed()?;
        if envelope.agent != agent {
            return Err(InvalidResponse::OtherAgent { found: envelope.agent }.at(&answer.url));
        }
        let known = self.identity().map(|identity| identity.installation_id);
        if known.is_some_and(|known| known != envelope.installation) {
            return Err(InvalidResponse::OtherInstallation { found: envelope.installation }.at(&answer.url));
        }
        // Use the computed tag, because a proxy may have changed the tag that it received from the broker.
        Ok((envelope, format!("\"{computed}\"")))
    }
}

fn refused(error: ClientError, spread: Option<Duration>) -> Result<Poll> {
    match error.code() {
        Some(ErrorCode::BRK3001) => Ok(Poll::HoldsWanted),
        Some(ErrorCode::BRK3002) => Ok(Poll::Behind { retry_after: error.retry_after(), spread }),
        Some(ErrorCode::BRK1004) => Ok(Poll::Superseded),
        Some(ErrorCode::BRK1005) => Ok(Poll::Duplicated),
        Some(ErrorCode::BRK1012) => Ok(Poll::NotIssued),
        Some(ErrorCode::BRK3005) => Ok(Poll::OnHold { retry_after: error.retry_after() }),
        _ => Err(error),
    }
}

fn seconds_of(answer: &Response, name: &'static str) -> Option<Duration> {
    answer.text_of(name)?.parse().ok().map(Duration::from_secs)
}

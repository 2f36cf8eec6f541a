//! The requests of the protocol, as an agent makes them.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, IF_NONE_MATCH};
use http::request::Builder;
use http::{Method, Request, Version};
use http_body_util::Full;

use brokkr_api::agents::{Holds, OpenSession};
use brokkr_api::assertion::BoundRequest;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{
    Capabilities, Capability, ENVELOPE_MEDIA_TYPE, PROTOCOL_VERSION, Session, YAML_MEDIA_TYPE, header,
};
use brokkr_api::report::ReportBatch;
use brokkr_api::{AgentId, PositionToken, SequenceId};
use uuid::Uuid;

use crate::config::{Broker, Transport};

/// The broker and the identity for requests. The assertion of a write is for this write only.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    pub broker: &'a Broker,
    pub transport: Transport,
    pub agent: AgentId,
    pub assertion: &'a str,
}

/// A write with its idempotency key, so that it can be sent again.
#[derive(Clone, Debug)]
pub struct Write {
    method: Method,
    path: &'static str,
    key: Uuid,
    session: Option<Session>,
    body: Bytes,
}

impl Write {
    pub fn session(session: Session) -> Self {
        let opening = OpenSession { count: session.count, instance: session.instance, namespace: None };
        Self::new(Method::POST, "session", None, serde_json::to_vec(&opening))
    }

    pub fn holds(session: Session, holds: &Holds) -> Self {
        Self::new(Method::PUT, "holds", Some(session), serde_json::to_vec(holds))
    }

    pub fn reports(batch: &ReportBatch) -> Self {
        Self::new(Method::POST, "reports", None, serde_json::to_vec(batch))
    }

    /// Returns what the assertion of this write is bound to.
    #[must_use]
    pub fn bound(&self, agent: AgentId) -> BoundRequest {
        BoundRequest {
            method: self.method.to_string(),
            path: format!("/api/v1/agents/{agent}/{}", self.path),
            idempotency_key: Some(self.key.to_string()),
            session: self.session.map(|session| session.to_string()),
            body: Checksum::of(&self.body),
        }
    }

    fn new(
        method: Method,
        path: &'static str,
        session: Option<Session>,
        body: serde_json::Result<Vec<u8>>,
    ) -> Self {
        // Our own types can always be serialized.
        let body = body.unwrap_or_default().into();
        Self { method, path, key: Uuid::new_v4(), session, body }
    }

    /// Returns whether it is the same write, regardless of its key.
    pub fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.body == other.body
    }

    /// Returns the same write with another key.
    pub fn with_new_key(&self) -> Self {
        Self { key: Uuid::new_v4(), ..self.clone() }
    }
}

/// The parameters of a poll.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub position: PositionToken,
    pub holds: Checksum,
    pub session: Session,
    /// The tag of the last answer.
    pub etag: Option<Checksum>,
    pub wait_seconds: u64,
}

impl Endpoint<'_> {
    pub fn poll(&self, poll: &Poll) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = self
            .begin(Method::GET, &format!("agents/{}/target-state", self.agent))
            .header(ACCEPT, ENVELOPE_MEDIA_TYPE)
            .header(CACHE_CONTROL, "no-store")
            .header(header::POSITION, poll.position.to_string())
            .header(header::HOLDS, poll.holds.to_string())
            .header(header::SESSION, poll.session.to_string());
        if let Some(etag) = poll.etag {
            request = request.header(IF_NONE_MATCH, format!("\"{etag}\""));
        }
        if poll.wait_seconds > 0 {
            request = request.header("prefer", format!("wait={}", poll.wait_seconds));
        }
        request.body(Full::default())
    }

    pub(crate) fn content(&self, sequence: SequenceId) -> Result<Request<Full<Bytes>>, http::Error> {
        let request = self.begin(Method::GET, &format!("deployment-objects/{sequence}"));
        request.header(ACCEPT, YAML_MEDIA_TYPE).body(Full::default())
    }

    pub fn write(&self, write: &Write) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = self
            .begin(write.method.clone(), &format!("agents/{}/{}", self.agent, write.path))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(header::IDEMPOTENCY_KEY, write.key.to_string());
        if let Some(session) = write.session {
            request = request.header(header::SESSION, session.to_string());
        }
        request.body(Full::new(write.body.clone()))
    }

    fn begin(&self, method: Method, path: &str) -> Builder {
        let address = self.broker.address;
        let request = match self.transport {
            Transport::Own => {
                Request::builder().uri(format!("/api/v1/{path}")).header(HOST, address.to_string())
            }
            Transport::Shared { .. } => Request::builder()
                .version(Version::HTTP_2)
                .uri(format!("https://{}/api/v1/{path}", self.broker.address)),
        };
        request
            .method(method)
            .header(AUTHORIZATION, format!("Bearer {}", self.assertion))
            .header(header::PROTOCOL, PROTOCOL_VERSION)
            .header(header::CAPABILITIES, capabilities().to_string())
    }
}

/// Returns what a simulated agent announces. It cannot replace itself.
fn capabilities() -> Capabilities {
    [Capability::KeyRotation, Capability::ReasonDetails].into_iter().collect()
}

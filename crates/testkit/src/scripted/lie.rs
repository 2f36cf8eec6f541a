//! Wrong answers as they happen in production, and as harmful as possible: unless a variant says otherwise,
//! the stacks in a complete answer are removals.

use axum::body::Body;
use axum::response::Response;
use brokkr_api::agents::AgentStatus;
use brokkr_api::envelope::{Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, PROBLEM_MEDIA_TYPE, YAML_MEDIA_TYPE, header};
use brokkr_api::{AgentId, ErrorCode, InstallationId, Position, Problem};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};

use super::truth::{Truth, tag};

const PORTAL: &str = "<!doctype html><title>Welcome</title><p>Please log in to use this network.</p>";

/// A wrong answer to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lie {
    /// Valid in every way, and without any stack.
    EmptyEnvelope,
    /// The connection ends in the middle of the body.
    CutOff,
    /// Half of the body, correctly framed by a proxy, with the tag of the whole.
    Shortened,
    /// A complete body that does not match the tag.
    WrongTag,
    /// A complete body without a tag.
    NoTag,
    /// 200 and a web page: a login portal.
    Html,
    /// The login portal again, by a redirect.
    Redirect,
    /// 200 with the right media type and an empty body, with a matching tag.
    EmptyBody,
    /// Valid, but without a position.
    NoPosition,
    /// A replica that lags: an older position, and the first version of every stack.
    OlderPosition,
    /// A replica that lags so far that it knows no stack.
    OlderPositionWithoutStacks,
    /// From before a restore: a position with an older epoch, although its transaction id (`horizon`) is the
    /// highest possible.
    OlderEpoch,
    /// At the present position, the first version of every stack.
    OlderSequence,
    /// At the present position, the present sequence id of every stack with another content.
    OtherContent,
    /// At the present position, a removal of every stack with the sequence id of its first version.
    OlderRemoval,
    /// Meant for another agent.
    OtherAgent,
    /// From another broker.
    OtherInstallation,
    /// Says that the agent is not ACTIVE, and contains desired state nevertheless.
    InactiveWithStacks,
    /// A problem document.
    Refused(ErrorCode),
}

/// A wrong answer to the request for a content.
#[derive(Clone, Debug)]
pub enum ContentLie {
    /// Other bytes, complete and valid.
    Other(String),
    /// The connection ends in the middle.
    CutOff,
    /// Half of the bytes, correctly framed.
    Shortened,
    Html,
    Empty,
}

/// An answer before it is serialized.
pub struct PollAnswer {
    status: StatusCode,
    media_type: &'static str,
    pub etag: Option<String>,
    position: Option<Position>,
    body: Vec<u8>,
    cut_off: bool,
}

impl PollAnswer {
    /// Returns the correct answer.
    pub fn truth(truth: &Truth) -> Self {
        let sealed = truth.envelope();
        Self {
            status: StatusCode::OK,
            media_type: ENVELOPE_MEDIA_TYPE,
            etag: Some(sealed.tag()),
            position: Some(truth.position),
            body: sealed.bytes,
            cut_off: false,
        }
    }

    pub fn problem(code: ErrorCode) -> Self {
        let problem = Problem::new(code, "the script says so");
        Self {
            status: StatusCode::from_u16(code.status()).expect("codes have statuses"),
            media_type: PROBLEM_MEDIA_TYPE,
            etag: None,
            position: None,
            body: serde_json::to_vec(&problem).expect("a problem is JSON"),
            cut_off: false,
        }
    }

    fn page(status: StatusCode) -> Self {
        let body = PORTAL.as_bytes().to_vec();
        Self { status, media_type: "text/html", etag: Some(tag(&body)), position: None, body, cut_off: false }
    }

    pub fn not_modified(mut self) -> Response {
        self.status = StatusCode::NOT_MODIFIED;
        self.body.clear();
        self.respond()
    }

    pub fn respond(self) -> Response {
        let mut response = Response::builder().status(self.status).header(CONTENT_TYPE, self.media_type);
        if let Some(etag) = self.etag {
            response = response.header(ETAG, etag);
        }
        if let Some(position) = self.position {
            response = response.header(header::POSITION, position.to_string());
        }
        if self.status.is_redirection() && self.status != StatusCode::NOT_MODIFIED {
            response = response.header(LOCATION, "http://portal.invalid/login");
        }
        let response = match self.cut_off {
            false => response.body(Body::from(self.body)),
            true => response.header(CONTENT_LENGTH, self.body.len()).body(half_of(&self.body)),
        };
        response.expect("made of valid parts")
    }
}

impl Lie {
    pub fn forge(self, truth: &Truth) -> PollAnswer {
        let honest = PollAnswer::truth(truth);
        let sealed = |stacks: Vec<TargetStack>| {
            let sealed = truth.seal(|envelope| envelope.stacks = stacks);
            PollAnswer { etag: Some(sealed.tag()), body: sealed.bytes, ..PollAnswer::truth(truth) }
        };
        let removals = || removed(truth.newest());
        match self {
            Self::EmptyEnvelope => sealed(Vec::new()),
            Self::CutOff => PollAnswer { cut_off: true, ..honest },
            Self::Shortened => PollAnswer { body: honest.body[..honest.body.len() / 2].to_vec(), ..honest },
            Self::WrongTag => PollAnswer { etag: honest.etag, ..sealed(removals()) },
            Self::NoTag => PollAnswer { etag: None, ..sealed(removals()) },
            Self::Html => PollAnswer::page(StatusCode::OK),
            Self::Redirect => PollAnswer::page(StatusCode::FOUND),
            Self::EmptyBody => PollAnswer { etag: Some(tag(b"")), body: Vec::new(), ..honest },
            Self::NoPosition => PollAnswer { position: None, ..sealed(removals()) },
            Self::OlderPosition => PollAnswer { position: older(truth), ..sealed(truth.oldest()) },
            Self::OlderPositionWithoutStacks => PollAnswer { position: older(truth), ..sealed(Vec::new()) },
            Self::OlderEpoch => {
                let position = Position { epoch: truth.position.epoch - 1, horizon: u64::MAX };
                PollAnswer { position: Some(position), ..sealed(removals()) }
            }
            Self::OlderSequence => sealed(truth.oldest()),
            Self::OtherContent => {
                let other = |target| TargetStack { checksum: Checksum::of(b"other"), ..target };
                sealed(truth.newest().into_iter().map(other).collect())
            }
            Self::OlderRemoval => sealed(removed(truth.oldest())),
            Self::OtherAgent => forged(truth, |envelope| {
                envelope.agent = AgentId(uuid::Uuid::from_u128(7));
                envelope.stacks = removals();
            }),
            Self::OtherInstallation => forged(truth, |envelope| {
                envelope.installation = InstallationId(uuid::Uuid::from_u128(7));
                envelope.stacks = removals();
            }),
            Self::InactiveWithStacks => forged(truth, |envelope| {
                envelope.status = AgentStatus::Inactive;
                envelope.stacks = removals();
            }),
            Self::Refused(code) => PollAnswer::problem(code),
        }
    }
}

fn forged(truth: &Truth, change: impl FnOnce(&mut brokkr_api::envelope::Envelope)) -> PollAnswer {
    let sealed = truth.seal(change);
    PollAnswer { etag: Some(sealed.tag()), body: sealed.bytes, ..PollAnswer::truth(truth) }
}

/// Returns the position just before the current one.
fn older(truth: &Truth) -> Option<Position> {
    Some(Position { horizon: truth.position.horizon - 1, ..truth.position })
}

fn removed(stacks: Vec<TargetStack>) -> Vec<TargetStack> {
    let nothing = Checksum::of(b"");
    stacks
        .into_iter()
        .map(|target| TargetStack {
            removal: Some(Removal::Deleted),
            checksum: nothing,
            parsed_digest: nothing,
            ..target
        })
        .collect()
}

impl ContentLie {
    pub fn respond(&self, content: &str) -> Response {
        let bytes = content.as_bytes();
        let (media_type, body) = match self {
            Self::Other(other) => (YAML_MEDIA_TYPE, Body::from(other.clone())),
            Self::CutOff => (YAML_MEDIA_TYPE, half_of(bytes)),
            Self::Shortened => (YAML_MEDIA_TYPE, Body::from(bytes[..bytes.len() / 2].to_vec())),
            Self::Html => ("text/html", Body::from(PORTAL)),
            Self::Empty => (YAML_MEDIA_TYPE, Body::empty()),
        };
        let mut response = Response::builder().header(CONTENT_TYPE, media_type);
        if matches!(self, Self::CutOff) {
            response = response.header(CONTENT_LENGTH, bytes.len());
        }
        response.body(body).expect("made of valid parts")
    }
}

/// Returns the first half, followed by an error that closes the connection.
fn half_of(bytes: &[u8]) -> Body {
    let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
    let end = async {
        // The server sends the half while it waits for more; an immediate error would drop it.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut off, as the script says"))
    };
    Body::from_stream(stream::once(async { Ok(half) }).chain(stream::once(end)))
}

//! The API server, and what is read there: as the agent itself, whatever the stack. Each request has a deadline and no
//! hidden retry, and waits for a place.
//!
//! Nothing that writes for a stack is here: that needs an identity to act as, see [`Cluster::acting_as`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brokkr_manifest::Key;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::pacing::{Heard, Places};
use super::write::{APPLY, Writes};
use super::{classify, inside};
use crate::grant::Acting;
use crate::metrics::Metrics;
use crate::observe::tracked;
use crate::plan::steps::Answer;
use crate::plan::types::{Failure, FailureClass, Seen};
use crate::resource::Kind;

/// A request that takes longer than this is given up; whether it was carried out is found out later.
const DEADLINE: Duration = Duration::from_secs(30);
pub(super) const JSON: &str = "application/json";
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The API server, with a bound on how many requests are in flight.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    places: Arc<Places>,
    /// A7: what is queued when the agent has to stop must not go out afterwards.
    may_write: Arc<AtomicBool>,
    metrics: Metrics,
}

/// The reason of a request that was not sent because this agent must not write now.
pub const STOOD_DOWN: &str = "StoodDown";

/// An answer that is not a success is not an error here: the caller knows what it means.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What is asked of the API server, but for the body.
pub(super) struct Ask<'a> {
    pub method: Method,
    pub path: &'a str,
    pub content_type: &'a str,
    pub accept: &'a str,
    /// Whom to act as; none for the agent itself.
    pub user: Option<&'a str>,
}

impl Ask<'_> {
    /// What is asked for, in one word of ours.
    fn verb(&self) -> &'static str {
        match self.method {
            Method::GET => "read",
            Method::POST => "review",
            Method::DELETE => "delete",
            _ if self.path.contains("dryRun=All") => "dry_run",
            _ if self.content_type == APPLY => "apply",
            _ => "release",
        }
    }
}

impl Reply {
    pub(super) fn seen(&self, kind: &Kind) -> Result<Seen, Failure> {
        tracked::read(&self.body, &kind.name(), Timestamp::now())
            .map_err(|error| classify::unreachable(&format!("its answer cannot be read: {error}")))
    }

    pub(super) fn refusal(&self, kind: &Kind) -> Failure {
        let secret = kind.group.is_empty() && kind.kind == "Secret";
        classify::refusal(self.status, &self.body, self.retry_after(), secret)
    }

    fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(http::header::RETRY_AFTER)?;
        value.to_str().ok()?.parse().ok().map(Duration::from_secs)
    }
}

impl Cluster {
    #[must_use]
    pub fn new(client: Client, in_flight: usize) -> Self {
        let places = Arc::new(Places::new(in_flight));
        Self { client, places, may_write: Arc::default(), metrics: Metrics::default() }
    }

    /// The same, whose requests are counted here.
    #[must_use]
    pub fn counted_by(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    /// Requests that change something for a stack, made as whom its grant says.
    #[must_use]
    pub fn acting_as(&self, acting: &Acting) -> Writes {
        Writes::new(self.clone(), acting)
    }

    /// Lets requests that change something go out, or not; answers what was so before.
    pub fn let_write(&self, may_write: bool) -> bool {
        self.may_write.swap(may_write, Ordering::SeqCst)
    }

    /// Whether this agent may change anything now.
    pub fn check_may_write(&self) -> Result<(), Failure> {
        if self.may_write.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Failure {
            class: FailureClass::Transient,
            reason: STOOD_DOWN.into(),
            message: "this agent must not write now".into(),
            retry_after: None,
        })
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Reply, Failure> {
        let ask = Ask { method: Method::GET, path, content_type: JSON, accept, user: None };
        self.exchange(ask, Vec::new()).await
    }

    /// Asks what an account may do (none: the agent itself). POSTed, and changes nothing.
    pub(super) async fn review(
        &self,
        path: &str,
        user: Option<&str>,
        body: &Value,
    ) -> Result<Reply, Failure> {
        let ask = Ask { method: Method::POST, path, content_type: JSON, accept: JSON, user };
        self.exchange(ask, body.to_string().into_bytes()).await
    }

    pub(super) async fn exchange(&self, ask: Ask<'_>, body: Vec<u8>) -> Result<Reply, Failure> {
        // A POST is a review: see above.
        let writes = !matches!(ask.method, Method::GET | Method::POST);
        let verb = ask.verb();
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(http::header::CONTENT_TYPE, ask.content_type)
            .header(http::header::ACCEPT, ask.accept);
        if let Some(user) = ask.user {
            request = request.header("Impersonate-User", user);
        }
        let request = request.body(Body::from(body)).map_err(|error| classify::unreachable(&error))?;
        let place = self.places.take().await;
        if writes {
            // Looked at when it goes out, not when it was queued.
            self.check_may_write()?;
        }
        let sent = Instant::now();
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| classify::unreachable(&error))?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| classify::unreachable(&error))?.to_bytes();
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        };
        let reply = match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err(classify::unreachable(&format!("no answer within {} s", DEADLINE.as_secs()))),
        };
        self.metrics.asked(verb, reply.as_ref().ok().map(|reply| reply.status), sent.elapsed());
        if let Ok(reply) = &reply {
            place.heard(Heard::of(reply.status, reply.retry_after()));
        }
        reply
    }

    /// What to ask for: metadata alone where health needs no more.
    pub(super) fn accept(kind: &Kind) -> &'static str {
        if kind.has_status() { JSON } else { METADATA }
    }

    pub async fn look(&self, kind: &Kind, key: &Key) -> Answer {
        let accept = Self::accept(kind);
        match self.get(&kind.object_path(key), accept).await {
            Err(failure) => Answer::Failed(failure),
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => Answer::Looked(None),
            Ok(reply) if reply.status.is_success() => match reply.seen(kind) {
                Ok(seen) => Answer::Looked(Some(seen)),
                Err(failure) => Answer::Failed(failure),
            },
            Ok(reply) => Answer::Failed(reply.refusal(kind)),
        }
    }

    /// Whatever is at this path, whole; none if there is nothing.
    pub async fn read(&self, path: &str) -> Result<Option<Value>, Failure> {
        let reply = self.get(path, JSON).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => serde_json::from_slice(&reply.body)
                .map(Some)
                .map_err(|error| classify::unreachable(&format!("its answer cannot be read: {error}"))),
            status => Err(classify::refusal(status, &reply.body, reply.retry_after(), false)),
        }
    }

    /// What is inside a namespace or definition and would go with it.
    pub async fn look_inside(&self, key: &Key) -> Answer {
        match inside::foreign(self, key).await {
            Ok(foreign) => Answer::Inside(foreign),
            Err(failure) => Answer::Failed(failure),
        }
    }
}

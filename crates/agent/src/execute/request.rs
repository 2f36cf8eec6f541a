//! Requests to the API server, and reads with the agent's own account. Each request waits for a slot and has
//! a deadline; there are no hidden retries.
//!
//! Writes for a stack need an identity to act as, see [`Cluster::acting_as`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brokkr_api::reason::Reason;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::classify;
use super::pacing::{RequestSlots, ServerLoad};
use crate::automatic::AutomaticObject;
use crate::clock;
use crate::health_rules::HealthRules;
use crate::metrics::Metrics;
use crate::model::{Failure, FailureClass, SeenObject};
use crate::observe::tracked;
use crate::resource::Kind;

/// A request that takes longer is abandoned. Whether the server executed it is determined later.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
pub(super) const APPLY: &str = "application/apply-patch+yaml";
pub(super) const JSON: &str = "application/json";
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The API server, with a limit on concurrent requests.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    slots: Arc<RequestSlots>,
    /// Checked just before a write is sent (A7): queued writes are not sent once writes are suspended.
    may_write: Arc<AtomicBool>,
    metrics: Metrics,
    rules: HealthRules,
    /// Objects that controllers of this cluster put into every namespace.
    automatic: Arc<[AutomaticObject]>,
}

/// A response with any status: the caller interprets it.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    rules: HealthRules,
}

/// A request without its body.
pub(super) struct OutgoingRequest<'a> {
    pub method: Method,
    pub path: &'a str,
    pub content_type: &'a str,
    pub accept: &'a str,
    /// The account to act as; none for the agent's own.
    pub user: Option<&'a str>,
}

impl OutgoingRequest<'_> {
    /// Returns the verb for metrics.
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
    pub(super) fn seen(&self, kind: &Kind) -> Result<SeenObject, Failure> {
        tracked::read(&self.body, &kind.name(), clock::now(), &self.rules)
            .map_err(|error| classify::unreachable(&format!("failed to parse the response: {error}")))
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
        let slots = Arc::new(RequestSlots::new(in_flight));
        Self {
            client,
            slots,
            may_write: Arc::default(),
            metrics: Metrics::default(),
            rules: HealthRules::default(),
            automatic: Arc::default(),
        }
    }

    /// Returns the cluster with these metrics, which count its requests.
    #[must_use]
    pub fn counted_by(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    /// Returns the cluster with these health rules, which decide the health of the objects in its responses.
    #[must_use]
    pub fn with_health_rules(self, rules: &HealthRules) -> Self {
        Self { rules: rules.clone(), ..self }
    }

    #[must_use]
    pub fn health_rules(&self) -> &HealthRules {
        &self.rules
    }

    /// Returns the cluster with further objects that its controllers put into every namespace.
    #[must_use]
    pub fn with_automatic_objects(self, automatic: &[AutomaticObject]) -> Self {
        Self { automatic: automatic.into(), ..self }
    }

    pub(super) fn automatic_objects(&self) -> &[AutomaticObject] {
        &self.automatic
    }

    /// Allows or suspends writes; returns the previous setting.
    pub fn allow_writes(&self, may_write: bool) -> bool {
        self.may_write.swap(may_write, Ordering::SeqCst)
    }

    /// Fails if writes are suspended.
    pub fn check_may_write(&self) -> Result<(), Failure> {
        if self.may_write.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Failure::new(FailureClass::Transient, Reason::WritesSuspended))
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Reply, Failure> {
        let outgoing = OutgoingRequest { method: Method::GET, path, content_type: JSON, accept, user: None };
        self.exchange(outgoing, Vec::new()).await
    }

    /// Reviews the rights of an account (none: the agent's own), with a POST that changes nothing.
    pub(super) async fn review(
        &self,
        path: &str,
        user: Option<&str>,
        body: &Value,
    ) -> Result<Reply, Failure> {
        let outgoing = OutgoingRequest { method: Method::POST, path, content_type: JSON, accept: JSON, user };
        self.exchange(outgoing, body.to_string().into_bytes()).await
    }

    pub(super) async fn exchange(
        &self,
        outgoing: OutgoingRequest<'_>,
        body: Vec<u8>,
    ) -> Result<Reply, Failure> {
        // A POST is a review, which changes nothing.
        let writes = !matches!(outgoing.method, Method::GET | Method::POST);
        let verb = outgoing.verb();
        let mut request = Request::builder()
            .method(outgoing.method)
            .uri(outgoing.path)
            .header(http::header::CONTENT_TYPE, outgoing.content_type)
            .header(http::header::ACCEPT, outgoing.accept);
        if let Some(user) = outgoing.user {
            request = request.header("Impersonate-User", user);
        }
        let request = request.body(Body::from(body)).map_err(|error| classify::unreachable(&error))?;
        let slot = self.slots.take().await;
        if writes {
            // Checked after the wait for a slot, because writes may have been suspended meanwhile.
            self.check_may_write()?;
        }
        let sent = Instant::now();
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| classify::unreachable(&error))?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| classify::unreachable(&error))?.to_bytes();
            Ok(Reply { status: parts.status, headers: parts.headers, body, rules: self.rules.clone() })
        };
        let reply = match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err(classify::unreachable(&format!("no response within {} s", DEADLINE.as_secs()))),
        };
        self.metrics.asked(verb, reply.as_ref().ok().map(|reply| reply.status), sent.elapsed());
        if let Ok(reply) = &reply {
            slot.record_load(ServerLoad::of(reply.status, reply.retry_after(), &reply.body));
        }
        reply
    }

    /// Returns the media type to request: metadata only where health needs no more.
    pub(super) fn accept(kind: &Kind) -> &'static str {
        if kind.is_observed_in_full() { JSON } else { METADATA }
    }

    /// Returns the whole object at this path; none if there is none.
    pub async fn read(&self, path: &str) -> Result<Option<Value>, Failure> {
        let reply = self.get(path, JSON).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => serde_json::from_slice(&reply.body)
                .map(Some)
                .map_err(|error| classify::unreachable(&format!("failed to parse the response: {error}"))),
            status => Err(classify::refusal(status, &reply.body, reply.retry_after(), false)),
        }
    }
}

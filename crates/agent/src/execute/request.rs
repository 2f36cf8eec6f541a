//! The requests themselves: apply, look, delete, release. Each has a deadline and no hidden retry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brokkr_manifest::Key;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{classify, inside};
use crate::marks::{self, FIELD_MANAGER, Stamp, dress};
use crate::observe::tracked;
use crate::plan::steps::Answer;
use crate::plan::types::{Failure, FailureClass, Seen, Uid, Wanted};
use crate::resource::Kind;
use crate::yields;

/// A request that takes longer than this is given up; whether it was carried out is found out later.
const DEADLINE: Duration = Duration::from_secs(30);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// The API server, with a bound on how many requests are in flight.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    places: Arc<Semaphore>,
    /// A7: what is queued when the agent has to stop must not go out afterwards.
    may_write: Arc<AtomicBool>,
}

/// The reason of a request that was not sent because this agent must not write now.
pub const STOOD_DOWN: &str = "StoodDown";

/// An answer that is not a success is not an error here: the caller knows what it means.
pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    fn seen(&self, kind: &Kind) -> Result<Seen, Failure> {
        tracked::read(&self.body, &kind.name(), Timestamp::now())
            .map_err(|error| classify::unreachable(&format!("its answer cannot be read: {error}")))
    }

    fn refusal(&self, kind: &Kind) -> Failure {
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
        Self { client, places: Arc::new(Semaphore::new(in_flight)), may_write: Arc::default() }
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

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        accept: &str,
        body: Vec<u8>,
    ) -> Result<Reply, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, accept)
            .body(Body::from(body))
            .map_err(|error| classify::unreachable(&error))?;
        let _place = self.places.acquire().await.map_err(|error| classify::unreachable(&error))?;
        if request.method() != Method::GET {
            self.check_may_write()?;
        }
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| classify::unreachable(&error))?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| classify::unreachable(&error))?.to_bytes();
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(reply) => reply,
            Err(_) => Err(classify::unreachable(&format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }

    /// What to ask for: metadata alone where health needs no more.
    fn accept(kind: &Kind) -> &'static str {
        if kind.has_status() { "application/json" } else { METADATA }
    }

    async fn patch(
        &self,
        wanted: &Wanted,
        uid: Option<&Uid>,
        stamp: &Stamp,
        dry_run: bool,
    ) -> Result<Reply, Failure> {
        let dry = if dry_run { "&dryRun=All" } else { "" };
        let path = format!(
            "{}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict{dry}",
            wanted.kind.object_path(&wanted.key)
        );
        let body = wanted.body.to_value();
        let body = if dry_run { body } else { self.yielding(wanted, body).await? };
        let body = dress(body, &wanted.key, stamp, uid).to_string().into_bytes();
        let reply = self.send(Method::PATCH, &path, APPLY, Self::accept(&wanted.kind), body).await?;
        if reply.status.is_success() { Ok(reply) } else { Err(reply.refusal(&wanted.kind)) }
    }

    /// What to send of the manifest's object where fields of it are left to others.
    async fn yielding(&self, wanted: &Wanted, body: Value) -> Result<Value, Failure> {
        // What cannot be read as paths was refused with the whole manifest.
        let paths = brokkr_manifest::yields::paths(&body).unwrap_or_default();
        if paths.is_empty() {
            return Ok(body);
        }
        let live = self.read(&wanted.kind.object_path(&wanted.key)).await?;
        Ok(match live {
            Some(live) => yields::yielded(body, &live, &paths),
            None => body,
        })
    }

    /// B2: would it be accepted?
    pub async fn dry_run(&self, wanted: &Wanted, uid: Option<&Uid>, stamp: &Stamp) -> Answer {
        match self.patch(wanted, uid, stamp, true).await {
            // What would be created is not there.
            Ok(reply) => Answer::Valid { exists: reply.status != StatusCode::CREATED },
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// Who holds fields of ours: a dry run that does not insist is refused with their names.
    pub async fn rivals(&self, wanted: &Wanted, stamp: &Stamp) -> Answer {
        let path =
            format!("{}?fieldManager={FIELD_MANAGER}&dryRun=All", wanted.kind.object_path(&wanted.key));
        let body = dress(wanted.body.to_value(), &wanted.key, stamp, None).to_string().into_bytes();
        match self.send(Method::PATCH, &path, APPLY, METADATA, body).await {
            Ok(reply) if reply.status == StatusCode::CONFLICT => {
                Answer::Contended(classify::rivals(&reply.body))
            }
            Ok(_) => Answer::Contended(Vec::new()),
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// B3: server-side apply, force on, as the field manager `brokkr`.
    pub async fn apply(&self, wanted: &Wanted, uid: Option<&Uid>, stamp: &Stamp) -> Answer {
        let answer = self.patch(wanted, uid, stamp, false).await.and_then(|reply| {
            let created = reply.status == StatusCode::CREATED;
            Ok(Answer::Applied { seen: reply.seen(&wanted.kind)?, created })
        });
        answer.unwrap_or_else(Answer::Failed)
    }

    pub async fn look(&self, kind: &Kind, key: &Key) -> Answer {
        let accept = Self::accept(kind);
        match self.send(Method::GET, &kind.object_path(key), "application/json", accept, Vec::new()).await {
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
        let json = "application/json";
        let reply = self.send(Method::GET, path, json, json, Vec::new()).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => serde_json::from_slice(&reply.body)
                .map(Some)
                .map_err(|error| classify::unreachable(&format!("its answer cannot be read: {error}"))),
            status => Err(classify::refusal(status, &reply.body, reply.retry_after(), false)),
        }
    }

    /// Deletes exactly the object that was seen: another one under the same name is left alone.
    pub async fn delete(&self, kind: &Kind, key: &Key, uid: &Uid) -> Answer {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": uid}, "propagationPolicy": "Background",
        });
        self.change(
            Method::DELETE,
            kind,
            &kind.object_path(key),
            "application/json",
            &options,
            Answer::DeleteAccepted,
        )
        .await
    }

    /// Takes our marks off; every value stays.
    pub async fn release(&self, kind: &Kind, key: &Key, uid: &Uid) -> Answer {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", kind.object_path(key));
        self.change(Method::PATCH, kind, &path, MERGE, &marks::undress(uid), Answer::Released).await
    }

    async fn change(
        &self,
        method: Method,
        kind: &Kind,
        path: &str,
        content_type: &str,
        body: &Value,
        done: Answer,
    ) -> Answer {
        match self.send(method, path, content_type, METADATA, body.to_string().into_bytes()).await {
            Err(failure) => Answer::Failed(failure),
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => Answer::Gone,
            Ok(reply) if reply.status.is_success() => done,
            Ok(reply) => Answer::Failed(reply.refusal(kind)),
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

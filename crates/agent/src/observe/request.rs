//! The requests of a watch to the API server: list and watch.
//!
//! These are plain requests, so that every phase has its own deadline and every refusal is interpreted. A
//! watch that hangs would look exactly like a cluster without changes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use super::timing::WatchTiming;
use super::tracked::{self, Line, Page};
use crate::clock;
use crate::health_rules::HealthRules;
use crate::resource::Kind;

const PAGE: u32 = 250;
/// The maximum length of a line, far above the size of any object: etcd accepts 1.5 MiB.
const LONGEST_LINE: usize = 16 << 20;

/// What is watched: one kind, in all namespaces or in one.
#[derive(Clone)]
pub struct Source {
    pub client: Client,
    pub kind: Kind,
    pub namespace: Option<Arc<str>>,
    /// The label selector; none for every object of the kind.
    pub selector: Option<String>,
    pub metadata_only: bool,
    pub timing: WatchTiming,
    pub rules: HealthRules,
}

/// Why the API server refused a request.
#[derive(Debug)]
pub enum Refusal {
    /// 410: the resourceVersion is too old.
    Expired,
    /// 404, 405: there is no such kind, or it cannot be listed.
    NotServed,
    /// 403
    Denied(String),
    /// 400, 422: the request is invalid.
    Unfit(String),
    /// Any other error, with the Retry-After; the next request may succeed.
    Failed(String, Option<Duration>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the resourceVersion is too old"),
            Self::NotServed => f.write_str("the kind is not served"),
            Self::Denied(why) | Self::Unfit(why) | Self::Failed(why, _) => f.write_str(why),
        }
    }
}

impl Refusal {
    pub fn failed(what: impl std::fmt::Display) -> Self {
        Self::Failed(what.to_string(), None)
    }

    /// Returns the meaning of a status code, in a response or in a stream.
    fn of(code: u16, message: String, wait: Option<Duration>) -> Self {
        match code {
            410 => Self::Expired,
            404 | 405 => Self::NotServed,
            403 => Self::Denied(message),
            400 | 422 => Self::Unfit(message),
            _ => Self::Failed(format!("{code} {message}"), wait),
        }
    }
}

impl Source {
    /// Returns one page of a consistent list.
    pub async fn page(&self, next: &str) -> Result<Page, Refusal> {
        let mut query = format!("limit={PAGE}");
        add(&mut query, "continue", next);
        let asked = async {
            let body = self.get(query, "List").await?.into_body().collect().await.map_err(Refusal::failed)?;
            let (kind, now) = (self.kind.name(), clock::now());
            tracked::read_page(&body.to_bytes(), &kind, now, &self.rules).map_err(Refusal::failed)
        };
        within(self.timing.answer, asked).await
    }

    /// Watches changes after `version`.
    pub async fn watch(&self, version: &str) -> Result<Lines, Refusal> {
        let mut query = String::new();
        add(&mut query, "resourceVersion", version);
        self.open(query).await
    }

    /// Lists and watches in one request, without pages in memory.
    pub async fn stream(&self) -> Result<Lines, Refusal> {
        self.open("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned()).await
    }

    async fn open(&self, query: String) -> Result<Lines, Refusal> {
        let lasts = self.timing.watch();
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}{query}", lasts.as_secs());
        let body = within(self.timing.answer, self.get(query, "")).await?.into_body();
        let chunks = body.into_data_stream().map(|chunk| chunk.map_err(|error| error.to_string())).boxed();
        Ok(Lines {
            chunks,
            pending: BytesMut::new(),
            timeout: lasts + self.timing.margin,
            kind: self.kind.clone(),
            rules: self.rules.clone(),
        })
    }

    async fn get(&self, mut query: String, list: &str) -> Result<Response<Body>, Refusal> {
        if let Some(selector) = &self.selector {
            add(&mut query, "labelSelector", selector);
        }
        let accept = if self.metadata_only {
            format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1")
        } else {
            "application/json".to_owned()
        };
        let path = self.kind.path(self.namespace.as_deref(), None);
        let request = Request::get(format!("{path}?{query}"))
            .header(http::header::ACCEPT, accept)
            .body(Body::empty())
            .map_err(Refusal::failed)?;
        let response = self.client.send(request).await.map_err(Refusal::failed)?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }
}

fn add(query: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let encoded: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
        query.push_str(&format!("&{name}={encoded}"));
    }
}

pub async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(Refusal::Failed(format!("no response within {limit:?}"), None)))
}

async fn refusal(response: Response<Body>) -> Refusal {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        message: String,
    }
    let code: StatusCode = response.status();
    let wait = response
        .headers()
        .get(http::header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let status: Status = serde_json::from_slice(&body).unwrap_or_default();
    Refusal::of(code.as_u16(), status.message, wait)
}

/// The lines of an open watch.
pub struct Lines {
    chunks: futures::stream::BoxStream<'static, Result<Bytes, String>>,
    pending: BytesMut,
    /// The server ends every watch after the requested time; a watch without data for longer is dead.
    timeout: Duration,
    kind: Kind,
    rules: HealthRules,
}

impl Lines {
    /// Returns the next line with the version to continue from; `None` when the server ended the watch.
    pub async fn next(&mut self) -> Result<Option<(Line, String)>, Refusal> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return match tracked::read_line(&line, &self.kind.name(), clock::now(), &self.rules) {
                    Ok((Line::Error { code, message }, _)) => Err(Refusal::of(code, message, None)),
                    Ok(read) => Ok(Some(read)),
                    Err(error) => Err(Refusal::Failed(format!("failed to parse a line: {error}"), None)),
                };
            }
            if self.pending.len() > LONGEST_LINE {
                return Err(Refusal::failed("a line is too long"));
            }
            match tokio::time::timeout(self.timeout, self.chunks.next()).await {
                Err(_) => return Err(Refusal::Failed(format!("no data for {:?}", self.timeout), None)),
                Ok(None) => return Ok(None),
                Ok(Some(Ok(chunk))) => self.pending.extend_from_slice(&chunk),
                Ok(Some(Err(error))) => return Err(Refusal::Failed(error, None)),
            }
        }
    }
}

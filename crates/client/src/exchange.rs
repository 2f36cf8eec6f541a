//! One request and its complete response.

use std::time::{Duration, Instant};

use brokkr_api::ErrorCode;
use brokkr_api::assertion::BoundRequest;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{Capabilities, PROTOCOL_VERSION, header};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use url::Url;

use crate::builder::{Caller, Client};
use crate::error::{ClientError, Result, TransportError};
use crate::response::{InvalidResponse, Response};
use crate::retry::IdempotencyKey;

/// How long an ordinary request may take, from the first byte sent to the last received.
pub(crate) const ORDINARY_TIME: Duration = Duration::from_secs(30);
/// The broker sends no larger response; the limit protects the memory.
pub(crate) const ORDINARY_BYTES: usize = 64 * 1024 * 1024;

const JSON: &str = "application/json";

/// A request.
#[derive(Debug)]
pub struct Call {
    method: Method,
    url: Url,
    headers: Vec<(HeaderName, String)>,
    body: Option<(&'static str, Bytes)>,
    pub(crate) time: Duration,
    pub(crate) limit: usize,
}

impl Call {
    pub(crate) fn header(mut self, name: impl Into<HeaderName>, value: impl ToString) -> Self {
        self.headers.push((name.into(), value.to_string()));
        self
    }

    pub(crate) fn brokkr_header(self, name: &'static str, value: impl ToString) -> Self {
        self.header(HeaderName::from_static(name), value)
    }

    pub(crate) fn accept(self, media_type: &'static str) -> Self {
        self.header(ACCEPT, media_type)
    }

    pub(crate) fn idempotent(self, key: &IdempotencyKey) -> Self {
        self.brokkr_header(header::IDEMPOTENCY_KEY, key.as_str())
    }

    pub(crate) fn bytes(mut self, media_type: &'static str, bytes: Bytes) -> Self {
        self.body = Some((media_type, bytes));
        self
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(body)
            .map_err(|_| ClientError::Unsendable { what: "the body is not valid JSON" })?;
        Ok(self.bytes(JSON, bytes.into()))
    }

    pub(crate) fn query(mut self, pairs: &[(&'static str, String)]) -> Self {
        if !pairs.is_empty() {
            self.url.query_pairs_mut().extend_pairs(pairs);
        }
        self
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Returns the URL for errors, without the query.
    pub(crate) fn url_without_query(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }
}

impl Client {
    pub(crate) fn read(&self, path: &[&str]) -> Call {
        self.call(Method::GET, path).accept(JSON)
    }

    /// Returns a write with a new idempotency key. Retries send the same key.
    pub(crate) fn write(&self, method: Method, path: &[&str]) -> Call {
        self.call(method, path).accept(JSON).idempotent(&IdempotencyKey::generate())
    }

    pub(crate) fn call(&self, method: Method, path: &[&str]) -> Call {
        self.call_below(method, &["api", "v1"], path)
    }

    /// Returns a request for a path outside `/api/v1`, such as `/readyz`.
    pub(crate) fn read_beside(&self, name: &str) -> Call {
        self.call_below(Method::GET, &[], &[name])
    }

    fn call_below(&self, method: Method, root: &[&str], path: &[&str]) -> Call {
        let mut url = self.base().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(root);
            // The URL standard removes dots and empty segments, so the URL would address another resource.
            segments.extend(path.iter().map(|segment| match *segment {
                "" | "." | ".." => "%2E",
                other => other,
            }));
        }
        Call { method, url, headers: Vec::new(), body: None, time: ORDINARY_TIME, limit: ORDINARY_BYTES }
    }

    /// Sends once; an agent with a wrong clock sends a second time with the broker's time.
    pub(crate) async fn exchange(&self, call: &Call) -> Result<Response> {
        let answer = self.exchange_once(call).await?;
        let clock_moved = self.clock().learn(&answer.headers);
        if let Some(capabilities) = answer.text_of(header::CAPABILITIES) {
            self.remember_capabilities(Capabilities::parse(capabilities));
        }
        let is_refused_agent =
            answer.status == StatusCode::UNAUTHORIZED && matches!(self.caller(), Caller::Agent(_));
        if clock_moved {
            tracing::warn!(
                offset_seconds = self.clock_offset().as_secs(),
                "local clock differs from the broker's; using the broker's time"
            );
        }
        if clock_moved && is_refused_agent && says_not_authenticated(&answer) {
            return self.exchange_once(call).await;
        }
        Ok(answer)
    }

    async fn exchange_once(&self, call: &Call) -> Result<Response> {
        let request = self.request(call)?;
        let begun = Instant::now();
        let work = async {
            let response = self
                .transport()
                .execute(request)
                .await
                .map_err(|error| self.unreachable(call, &error, begun.elapsed()))?;
            whole(response, call).await
        };
        // The timeout includes the body: a slow server must not block the caller.
        match tokio::time::timeout(call.time, work).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Timeout { url: call.url_without_query(), after: call.time }),
        }
    }

    pub(crate) fn request(&self, call: &Call) -> Result<reqwest::Request> {
        let mut request = reqwest::Request::new(call.method.clone(), call.url.clone());
        let headers = request.headers_mut();
        for (name, value) in &call.headers {
            let value = HeaderValue::from_str(value).map_err(|_| ClientError::Unsendable {
                what: "a header value contains invalid characters",
            })?;
            headers.insert(name.clone(), value);
        }
        // Reads carry the position of the last write; a poll has its own position.
        if let Some(position) = self.written().filter(|_| !call.is_write())
            && !headers.contains_key(header::POSITION)
            && let Ok(value) = HeaderValue::from_str(&position.to_string())
        {
            headers.insert(header::POSITION, value);
        }
        if let Some(project) = self.project_named() {
            let value = HeaderValue::from_str(project).map_err(|_| ClientError::Unsendable {
                what: "the project's name contains invalid characters",
            })?;
            headers.insert(header::PROJECT, value);
        }
        match self.caller() {
            Caller::Anonymous => {}
            Caller::Token(token) => {
                headers.insert(AUTHORIZATION, bearer(token.expose_secret())?);
            }
            Caller::Agent(signer) => {
                let now = self.clock().broker_seconds();
                let assertion = if call.is_write() {
                    signer.write_assertion(now, self.bound(call, headers))?
                } else {
                    signer.read_assertion(now)?
                };
                headers.insert(AUTHORIZATION, bearer(&assertion)?);
                headers.insert(header::PROTOCOL, HeaderValue::from(PROTOCOL_VERSION));
                if let Ok(capabilities) = HeaderValue::from_str(&self.own_capabilities().to_string()) {
                    headers.insert(header::CAPABILITIES, capabilities);
                }
            }
        }
        if let Some((media_type, bytes)) = &call.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            *request.body_mut() = Some(bytes.clone().into());
        }
        Ok(request)
    }

    /// Returns what an assertion for this write is bound to.
    fn bound(&self, call: &Call, headers: &HeaderMap) -> BoundRequest {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        // A proxy that serves the broker below a path removes this path.
        let prefix = self.base().path();
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let path = call.url.path();
        let path = path.strip_prefix(prefix).unwrap_or(path);
        let query = call.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        BoundRequest {
            method: call.method.to_string(),
            path: format!("{path}{query}"),
            idempotency_key: text(header::IDEMPOTENCY_KEY),
            session: text(header::SESSION),
            body: Checksum::of(call.body.as_ref().map_or(&[], |(_, bytes)| bytes)),
        }
    }

    pub(crate) fn unreachable(&self, call: &Call, error: &reqwest::Error, after: Duration) -> ClientError {
        if error.is_timeout() {
            return ClientError::Timeout { url: call.url_without_query(), after: call.time };
        }
        ClientError::Unreachable {
            url: call.url_without_query(),
            source: TransportError::of(error),
            proxy: self.proxy_hint(),
            after,
        }
    }
}

/// Reads the complete body.
pub(crate) async fn whole(mut response: reqwest::Response, call: &Call) -> Result<Response> {
    let status = response.status();
    let headers = std::mem::take(response.headers_mut());
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) if body.len() + chunk.len() > call.limit => {
                return Err(InvalidResponse::TooLarge { limit: call.limit }.at(&call.url_without_query()));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(_) => return Err(InvalidResponse::CutOff.at(&call.url_without_query())),
        }
    }
    Ok(Response { url: call.url_without_query(), status, headers, body: body.freeze() })
}

fn bearer(secret: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
        .map_err(|_| ClientError::Unsendable { what: "the token contains invalid characters" })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A 401 of a proxy must not make an agent send its assertion again.
fn says_not_authenticated(answer: &Response) -> bool {
    serde_json::from_slice::<brokkr_api::Problem>(&answer.body)
        .is_ok_and(|problem| problem.code == ErrorCode::BRK1001)
}

//! The listener, and how one request is processed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::faults::{Action, ActiveRule, ListSnapshot, Rules};
use super::request::ProxiedRequest;
use super::response::CannedResponse;
use super::stream;
use super::trace::Trace;
use crate::rules::{Applied, Gate};
use crate::scripted::listener::config;
use crate::tls::Identity;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const UNTIL_CUT: Duration = Duration::from_millis(30);

/// The client gets no response; its connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("connection closed on purpose")]
struct Cut;

type ProxyResult = std::result::Result<Response<Body>, Cut>;

/// State that the listener and the test share.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: String,
    client: reqwest::Client,
    pub(super) rules: Rules,
    lists: Mutex<HashMap<String, Bytes>>,
    /// Ends all open watches.
    watches: Mutex<CancellationToken>,
    pub(super) trace: Trace,
}

impl Shared {
    pub(super) fn new(upstream: &str, trusted: &str) -> Result<Self> {
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(trusted.as_bytes())?])
            .no_proxy()
            .no_gzip()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_DEADLINE)
            .build()?;
        let upstream = upstream.trim_end_matches('/').to_owned();
        Ok(Self {
            upstream,
            client,
            rules: Rules::default(),
            lists: Mutex::default(),
            watches: Mutex::default(),
            trace: Trace::default(),
        })
    }

    pub(super) fn lists(&self) -> ListSnapshot {
        ListSnapshot(Arc::new(lock(&self.lists).clone()))
    }

    pub(super) fn end_watches(&self) {
        std::mem::take(&mut *lock(&self.watches)).cancel();
    }

    fn find_rule(&self, request: &ProxiedRequest) -> Option<Applied<ProxiedRequest, Action>> {
        let applied = self.rules.find(request)?;
        if !applied.rule.fault.counts_later() {
            applied.rule.hit();
        }
        Some(applied)
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> ProxyResult {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.map_err(|_| Cut)?;
        let request = ProxiedRequest::new(&parts, body);
        let number = self.trace.begin(&request);
        let applied = self.find_rule(&request);
        if !request.is_write() {
            // A read is dropped when its client disconnects; a write is not.
            return self.process(request, number, applied).await;
        }
        let processed = tokio::spawn(async move { self.process(request, number, applied).await });
        processed.await.unwrap_or(Err(Cut))
    }

    async fn process(
        self: Arc<Self>,
        mut request: ProxiedRequest,
        number: usize,
        applied: Option<Applied<ProxiedRequest, Action>>,
    ) -> ProxyResult {
        let Some(Applied { rule, is_first }) = applied else {
            return self.pass(&request, number, None).await;
        };
        let discarded = async || rule.opened().await == Gate::Discard;
        match rule.fault.clone() {
            Action::HaltAfter if is_first => {
                let response = self.pass(&request, number, None).await;
                rule.hit();
                if discarded().await { Err(Cut) } else { response }
            }
            Action::Hold | Action::HaltBefore | Action::HaltAfter => {
                if discarded().await {
                    Err(Cut)
                } else {
                    self.pass(&request, number, None).await
                }
            }
            Action::HoldResponse => {
                let response = self.pass(&request, number, None).await;
                rule.hit();
                if discarded().await { Err(Cut) } else { response }
            }
            Action::LoseResponse => {
                let _ = self.forward(&request, number).await;
                rule.hit();
                Err(Cut)
            }
            Action::Cut => Err(Cut),
            Action::Respond(canned) => Ok(self.respond(number, canned)),
            Action::ChangeQuery(change) => {
                request.query = change(&request.query);
                self.pass(&request, number, None).await
            }
            Action::StaleLists(ListSnapshot(lists)) => match lists.get(&request.list_key()) {
                Some(body) if request.is_list() => {
                    rule.hit();
                    Ok(self.respond(number, CannedResponse::json(200, body.clone())))
                }
                _ => self.pass(&request, number, None).await,
            },
            Action::ChangeBody(_) | Action::Truncate | Action::CutResponse => {
                self.pass(&request, number, Some(rule)).await
            }
            Action::Freeze | Action::DropEvents(_) | Action::WatchLine(_) => {
                self.pass(&request, number, Some(rule)).await
            }
        }
    }

    fn respond(&self, number: usize, canned: CannedResponse) -> Response<Body> {
        self.trace.client_received(number, canned.status.as_u16());
        let mut response = Response::new(Body::from(canned.body));
        *response.status_mut() = canned.status;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, http::HeaderValue::from_static(canned.content_type));
        if let Some(seconds) = canned.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    /// Forwards the request. If the server cannot be reached, the client's connection is closed.
    async fn forward(
        &self,
        request: &ProxiedRequest,
        number: usize,
    ) -> std::result::Result<reqwest::Response, Cut> {
        let mark = if request.query.is_empty() { "" } else { "?" };
        let url = format!("{}{}{mark}{}", self.upstream, request.path, request.query);
        let mut headers = without_connection(&request.headers);
        headers.remove(header::HOST);
        // Compressed responses could be neither read nor split into lines.
        headers.remove(header::ACCEPT_ENCODING);
        let forwarded =
            self.client.request(request.method.clone(), url).headers(headers).body(request.body.clone());
        let response = forwarded.send().await.map_err(|_| Cut)?;
        self.trace.server_responded(number, response.status().as_u16());
        Ok(response)
    }

    /// Forwards the request and returns the response, changed by the rule.
    async fn pass(&self, request: &ProxiedRequest, number: usize, rule: Option<ActiveRule>) -> ProxyResult {
        let upstream = self.forward(request, number).await?;
        let (status, headers) = (upstream.status(), without_connection(upstream.headers()));
        let body = if request.is_watch() && status.is_success() {
            let ended = lock(&self.watches).clone().cancelled_owned();
            Body::from_stream(stream::watch(upstream, rule).take_until(ended))
        } else {
            let whole = upstream.bytes().await.map_err(|_| Cut)?;
            if request.is_list() && status.is_success() && !request.query.contains("continue=") {
                lock(&self.lists).insert(request.list_key(), whole.clone());
            }
            match rule.as_ref().map(|rule| &rule.fault) {
                Some(Action::ChangeBody(change)) => Body::from(change(request, whole)),
                Some(Action::Truncate) => Body::from(whole.slice(..whole.len() / 2)),
                Some(Action::CutResponse) => cut_in_half(whole),
                _ => Body::from(whole),
            }
        };
        self.trace.client_received(number, status.as_u16());
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Returns the first half and closes the connection a little later, so that the half is sent first.
fn cut_in_half(whole: Bytes) -> Body {
    let half = whole.slice(..whole.len() / 2);
    let end = async {
        tokio::time::sleep(UNTIL_CUT).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    let first = futures::stream::once(async move { Ok(half) });
    Body::from_stream(first.chain(futures::stream::once(end)))
}

/// Removes hop-by-hop headers.
fn without_connection(headers: &HeaderMap) -> HeaderMap {
    const HOP_BY_HOP: [HeaderName; 5] =
        [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::UPGRADE, header::TE];
    let mut kept = headers.clone();
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// Listens on a port that the kernel chooses.
pub(super) async fn listen(identity: &Identity, shared: Arc<Shared>) -> Result<(SocketAddr, JoinHandle<()>)> {
    let tls = TlsAcceptor::from(Arc::new(config(identity)?));
    let socket = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on the loopback address")?;
    let address = socket.local_addr()?;
    let server = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = socket.accept().await {
            let (tls, shared) = (tls.clone(), shared.clone());
            connections.spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(move |request| shared.clone().serve(request));
                // Fails when a response is cut or the client disconnects; tests do both.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Ok((address, server))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

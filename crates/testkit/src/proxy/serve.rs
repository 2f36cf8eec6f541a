//! The listener, and how one request is carried out.

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

use super::asked::Asked;
use super::canned::Canned;
use super::rules::{Action, Gate, Matcher, Rule, RuleState, Snapshot};
use super::stream;
use super::trace::Trace;
use crate::scripted::listener::config;
use crate::tls::Identity;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const UNTIL_CUT: Duration = Duration::from_millis(30);

/// The client gets no answer, but the end of its connection.
#[derive(Debug, thiserror::Error)]
#[error("cut off on purpose")]
struct Cut;

type Told = std::result::Result<Response<Body>, Cut>;

/// What the listener and the test share.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: String,
    client: reqwest::Client,
    rules: Mutex<Vec<Arc<RuleState>>>,
    lists: Mutex<HashMap<String, Bytes>>,
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
            rules: Mutex::default(),
            lists: Mutex::default(),
            trace: Trace::default(),
        })
    }

    pub(super) fn install(&self, matcher: Matcher, action: Action) -> Rule {
        let state = Arc::new(RuleState::new(matcher, action));
        let mut rules = lock(&self.rules);
        rules.retain(|rule| !rule.removed.is_cancelled());
        rules.push(state.clone());
        Rule { state }
    }

    pub(super) fn remove_all(&self) {
        for rule in lock(&self.rules).drain(..) {
            rule.remove();
        }
    }

    pub(super) fn lists(&self) -> Snapshot {
        Snapshot(Arc::new(lock(&self.lists).clone()))
    }

    /// The rule that this request meets, and whether it is the first to do so. Decided under one lock: of two
    /// requests at the same time, one is the earlier.
    fn meet(&self, asked: &Asked) -> Option<(Arc<RuleState>, bool)> {
        let rules = lock(&self.rules);
        let rule = rules.iter().find(|rule| rule.acts_on(asked))?;
        let first = rule.act();
        // A watch under `Swallow` counts what was swallowed, not that it began.
        if !rule.forwards_first() && !matches!(rule.action, Action::Swallow(_)) {
            rule.reach();
        }
        Some((rule.clone(), first))
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Told {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await.map_err(|_| Cut)?;
        let asked = Asked::new(&parts, body);
        let number = self.trace.begin(&asked);
        let met = self.meet(&asked);
        if !asked.is_write() {
            // Who reads and goes away asks no longer.
            return self.carry_out(asked, number, met).await;
        }
        let carried_out = tokio::spawn(async move { self.carry_out(asked, number, met).await });
        carried_out.await.unwrap_or(Err(Cut))
    }

    async fn carry_out(
        self: Arc<Self>,
        mut asked: Asked,
        number: usize,
        met: Option<(Arc<RuleState>, bool)>,
    ) -> Told {
        let Some((rule, first)) = met else { return self.pass(&asked, number, None).await };
        let discarded = async || rule.opened().await == Gate::Discard;
        match rule.action.clone() {
            Action::HaltAfter if first => {
                let answer = self.pass(&asked, number, None).await;
                rule.reach();
                if discarded().await { Err(Cut) } else { answer }
            }
            Action::Hold | Action::HaltBefore | Action::HaltAfter => {
                if discarded().await {
                    Err(Cut)
                } else {
                    self.pass(&asked, number, None).await
                }
            }
            Action::HoldAnswer => {
                let answer = self.pass(&asked, number, None).await;
                rule.reach();
                if discarded().await { Err(Cut) } else { answer }
            }
            Action::LoseAnswer => {
                let _ = self.forward(&asked, number).await;
                rule.reach();
                Err(Cut)
            }
            Action::Cut => Err(Cut),
            Action::Answer(canned) => Ok(self.tell(number, canned)),
            Action::Query(change) => {
                asked.query = change(&asked.query);
                self.pass(&asked, number, None).await
            }
            Action::Older(Snapshot(lists)) => match lists.get(&asked.list_key()) {
                Some(body) if asked.is_list() => Ok(self.tell(number, Canned::json(200, body.clone()))),
                _ => self.pass(&asked, number, None).await,
            },
            Action::Rewrite(_) | Action::Truncate | Action::CutShort => {
                self.pass(&asked, number, Some(rule)).await
            }
            Action::Freeze | Action::Swallow(_) | Action::Line(_) => {
                self.pass(&asked, number, Some(rule)).await
            }
        }
    }

    fn tell(&self, number: usize, canned: Canned) -> Response<Body> {
        self.trace.told(number, canned.status.as_u16());
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

    /// Sends it on. A server that cannot be reached looks to the client like a connection that ends.
    async fn forward(&self, asked: &Asked, number: usize) -> std::result::Result<reqwest::Response, Cut> {
        let mark = if asked.query.is_empty() { "" } else { "?" };
        let url = format!("{}{}{mark}{}", self.upstream, asked.path, asked.query);
        let mut headers = without_connection(&asked.headers);
        headers.remove(header::HOST);
        // Compressed answers could be neither read nor cut into lines.
        headers.remove(header::ACCEPT_ENCODING);
        let request =
            self.client.request(asked.method.clone(), url).headers(headers).body(asked.body.clone());
        let response = request.send().await.map_err(|_| Cut)?;
        self.trace.answered(number, response.status().as_u16());
        Ok(response)
    }

    /// Sends it on and passes the answer back, changed as the rule wants.
    async fn pass(&self, asked: &Asked, number: usize, rule: Option<Arc<RuleState>>) -> Told {
        let upstream = self.forward(asked, number).await?;
        let (status, headers) = (upstream.status(), without_connection(upstream.headers()));
        let body = if asked.is_watch() && status.is_success() {
            Body::from_stream(stream::watch(upstream, rule))
        } else {
            let whole = upstream.bytes().await.map_err(|_| Cut)?;
            if asked.is_list() && status.is_success() && !asked.query.contains("continue=") {
                lock(&self.lists).insert(asked.list_key(), whole.clone());
            }
            match rule.as_ref().map(|rule| &rule.action) {
                Some(Action::Rewrite(change)) => Body::from(change(asked, whole)),
                Some(Action::Truncate) => Body::from(whole.slice(..whole.len() / 2)),
                Some(Action::CutShort) => cut_short(whole),
                _ => Body::from(whole),
            }
        };
        self.trace.told(number, status.as_u16());
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// The first half, and then the end of the connection; a little later, so that the half is on its way before.
fn cut_short(whole: Bytes) -> Body {
    let half = whole.slice(..whole.len() / 2);
    let end = async {
        tokio::time::sleep(UNTIL_CUT).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    let first = futures::stream::once(async move { Ok(half) });
    Body::from_stream(first.chain(futures::stream::once(end)))
}

/// What is about the connection, and not about the message, ends here.
fn without_connection(headers: &HeaderMap) -> HeaderMap {
    const OURS: [HeaderName; 5] =
        [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::UPGRADE, header::TE];
    let mut kept = headers.clone();
    for name in OURS {
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
                let service = service_fn(move |request| shared.clone().answer(request));
                // Fails when an answer is cut, or the client goes away: both are what tests do.
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

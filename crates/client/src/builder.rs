//! The client and its builder.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brokkr_api::PositionToken;
use brokkr_api::protocol::{Capabilities, Capability};
use http::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use strum::IntoEnumIterator as _;
use url::Url;

use crate::assertion::Signer;
use crate::clock::Clock;
use crate::credential::{AgentIdentity, Credential};
use crate::key::AgentKey;
use crate::plausible::check_position;
use crate::retry::RetryPolicy;

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Shorter than the idle timeout of common load balancers (60 s and more), so that a connection that they dropped is never
/// used again.
const IDLE_TIME: Duration = Duration::from_secs(50);
const KEEPALIVE: Duration = Duration::from_secs(20);

/// A client of one broker that reads its own writes from any replica. Cheap to clone; clones share connections and the
/// clock offset.
#[derive(Clone, Debug)]
pub struct Client {
    transport: reqwest::Client,
    base: Arc<Url>,
    caller: Arc<Caller>,
    identity: Option<Arc<AgentIdentity>>,
    clock: Arc<Clock>,
    /// The position of the last write; reads must not be older.
    written: Arc<Mutex<Option<PositionToken>>>,
    capabilities: Arc<Mutex<Capabilities>>,
    /// Whether the agent may replace itself by an image that the broker offers.
    announces_upgrades: Arc<AtomicBool>,
    retry: RetryPolicy,
    project: Option<Arc<str>>,
}

/// A credential in the form in which requests use it.
#[derive(Debug)]
pub(crate) enum Caller {
    Anonymous,
    Token(SecretString),
    Agent(Signer),
}

#[derive(Debug)]
pub struct ClientBuilder {
    url: Url,
    ca_pem: Option<Vec<u8>>,
    only_ca_pem: bool,
    credential: Credential,
    user_agent: String,
    retry: RetryPolicy,
    project: Option<String>,
    address: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the broker's URL must start with https:// or http://")]
    Scheme,
    #[error("the broker's URL must not contain a user name or password")]
    UserInfo,
    #[error("the CA file contains no certificate in PEM form")]
    Authorities,
    #[error("the user agent contains characters that are not allowed in HTTP headers")]
    UserAgent,
    #[error("failed to set up TLS: {0}")]
    Tls(String),
}

impl Client {
    /// Returns a builder for a client of the broker at `url`, which may have a path but not `/api/v1`.
    #[must_use]
    pub fn builder(url: Url) -> ClientBuilder {
        ClientBuilder {
            url,
            ca_pem: None,
            only_ca_pem: false,
            credential: Credential::None,
            user_agent: concat!("brokkr-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry: RetryPolicy::none(),
            project: None,
            address: None,
        }
    }

    /// Returns a client with the same connections and another caller.
    #[must_use]
    pub fn with_credential(&self, credential: Credential) -> Self {
        let (caller, identity) = caller_of(credential);
        Self { caller: Arc::new(caller), identity, ..self.clone() }
    }

    /// Signs with another key of the same agent from now on, also in clones. Has no effect for other callers.
    pub fn sign_with(&self, key: &AgentKey) {
        if let Caller::Agent(signer) = self.caller() {
            signer.sign_with(key);
        }
    }

    /// Returns the client with another retry policy.
    #[must_use]
    pub fn with_retry(&self, retry: RetryPolicy) -> Self {
        Self { retry, ..self.clone() }
    }

    /// Returns how far the broker's clock is ahead of the local one; zero if they differ by at most 2 s.
    #[must_use]
    pub fn clock_offset(&self) -> SignedDuration {
        self.clock.offset()
    }

    /// Returns the URL of the broker.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    pub(crate) fn project_named(&self) -> Option<&str> {
        self.project.as_deref()
    }

    pub(crate) fn identity(&self) -> Option<&AgentIdentity> {
        self.identity.as_deref()
    }

    pub(crate) fn transport(&self) -> &reqwest::Client {
        &self.transport
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn retry_policy(&self) -> &RetryPolicy {
        &self.retry
    }

    /// Returns the position of the last write, so that another replica catches up before it responds.
    pub(crate) fn written(&self) -> Option<PositionToken> {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces from now on, also in clones, whether this agent replaces itself when the broker offers an image.
    pub fn announce_upgrades(&self, allowed: bool) {
        self.announces_upgrades.store(allowed, Ordering::Relaxed);
    }

    /// Returns the capabilities that this agent announces.
    pub(crate) fn own_capabilities(&self) -> Capabilities {
        let allowed = self.announces_upgrades.load(Ordering::Relaxed);
        Capability::iter().filter(|capability| allowed || *capability != Capability::Upgrade).collect()
    }

    /// Returns the capabilities that the broker last announced; none before its first response to an agent.
    pub(crate) fn broker_capabilities(&self) -> Capabilities {
        *self.capabilities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remember_capabilities(&self, announced: Capabilities) {
        *self.capabilities.lock().unwrap_or_else(PoisonError::into_inner) = announced;
    }

    /// Remembers the position, unless no broker can have issued it: then every later read would be refused.
    pub(crate) fn remember_written(&self, position: PositionToken) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.unwrap_or_default();
        match check_position(before.position, position.position, Timestamp::now().as_second()) {
            Ok(()) => *written = Some(before.later(position)),
            Err(error) => {
                tracing::warn!(reason = error.reason(), "ignored the position of a response: {error}");
            }
        }
    }

    /// Returns the proxy from the environment, without its credentials; none if NO_PROXY excludes the broker.
    #[must_use]
    pub fn proxy_hint(&self) -> Option<String> {
        let broker = self.base.as_str().parse().ok()?;
        let intercepted = Matcher::from_system().intercept(&broker)?;
        let (host, port) = (intercepted.uri().host()?, intercepted.uri().port_u16());
        Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    }
}

impl ClientBuilder {
    /// Trusts these certificate authorities in PEM form, in addition to the system's.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Trusts only these certificate authorities in PEM form.
    #[must_use]
    pub fn only_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.only_ca_pem = true;
        self.ca_pem(pem)
    }

    #[must_use]
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Acts in this project; for admins and auditors.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Connects to this address instead of resolving the broker's name, to reach one of several replicas.
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    pub fn build(self) -> Result<Client, BuildError> {
        if !matches!(self.url.scheme(), "https" | "http") {
            return Err(BuildError::Scheme);
        }
        if !self.url.username().is_empty() || self.url.password().is_some() {
            return Err(BuildError::UserInfo);
        }
        let user_agent = HeaderValue::from_str(&self.user_agent).map_err(|_| BuildError::UserAgent)?;
        let authorities = match &self.ca_pem {
            None => Vec::new(),
            Some(pem) => reqwest::Certificate::from_pem_bundle(pem)
                .ok()
                .filter(|certificates| !certificates.is_empty())
                .ok_or(BuildError::Authorities)?,
        };
        let builder = reqwest::Client::builder()
            .user_agent(user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .pool_idle_timeout(IDLE_TIME)
            .tcp_keepalive(KEEPALIVE)
            .http2_keep_alive_interval(KEEPALIVE)
            .http2_keep_alive_while_idle(false);
        // Without TLS the system's authorities are not needed, and an image without any must still work.
        let builder = if self.only_ca_pem || self.url.scheme() == "http" {
            builder.tls_certs_only(authorities)
        } else {
            builder.tls_certs_merge(authorities)
        };
        // An agent mostly waits, on one connection. With HTTP/1 this costs the broker a third of what HTTP/2
        // costs.
        let builder =
            if matches!(self.credential, Credential::Agent(_)) { builder.http1_only() } else { builder };
        let builder = match (self.address, self.url.host_str()) {
            (Some(address), Some(host)) => builder.resolve(host, address),
            _ => builder,
        };
        let transport = builder.build().map_err(|error| BuildError::Tls(innermost(&error)))?;
        let (caller, identity) = caller_of(self.credential);
        Ok(Client {
            transport,
            base: Arc::new(self.url),
            caller: Arc::new(caller),
            identity,
            clock: Arc::new(Clock::default()),
            written: Arc::default(),
            capabilities: Arc::default(),
            announces_upgrades: Arc::default(),
            retry: self.retry,
            project: self.project.map(Arc::from),
        })
    }
}

fn caller_of(credential: Credential) -> (Caller, Option<Arc<AgentIdentity>>) {
    match credential {
        Credential::None => (Caller::Anonymous, None),
        Credential::Token(token) => (Caller::Token(token), None),
        Credential::Agent(identity) => (Caller::Agent(Signer::new(&identity)), Some(Arc::new(identity))),
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

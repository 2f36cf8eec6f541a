//! One attempt to send one message: signed, to an address that the policy allows, without redirects or proxies, with an
//! overall deadline and a limit on the response.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brokkr_api::webhooks::Attempt;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use jiff::Timestamp;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response};

use super::resolver::{PolicyResolver, Resolver};
use crate::domain::webhooks::egress_policy::EgressPolicy;
use crate::domain::webhooks::signature::{self, WebhookSecret, signatures};

/// For name resolution, connection, handshake, request and the head of the response together.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// How long a receiver may take for the body of its response.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes of a response are read: enough that an ordinary response is read to its end.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of a response that are stored.
const STORED_BYTES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("failed to read the certificates in {}", .file.display())]
    Certificates {
        file: PathBuf,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("failed to create the webhook client")]
    Client(#[source] reqwest::Error),
}

#[derive(Debug)]
pub struct Sender {
    policy: EgressPolicy,
    client: Client,
}

/// A message and its destination.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub url: &'a str,
    pub id: &'a str,
    pub body: &'a [u8],
    pub secrets: &'a [WebhookSecret],
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub struct SendOutcome {
    pub attempt: Attempt,
    /// The `Retry-After` of the receiver.
    pub retry_after: Option<Duration>,
    /// The receiver answered 410 Gone.
    pub gone: bool,
}

impl SendOutcome {
    /// Returns the outcome of an attempt that sent nothing.
    pub fn failed(error: impl Into<String>) -> Self {
        let attempt = Attempt {
            delivered: false,
            status: None,
            error: Some(error.into()),
            millis: 0,
            answer: String::new(),
        };
        Self { attempt, retry_after: None, gone: false }
    }
}

impl Sender {
    /// `authorities` are trusted in addition to those of the system.
    pub fn new(
        policy: EgressPolicy,
        resolver: Arc<dyn Resolver>,
        authorities: Option<&Path>,
    ) -> Result<Self, SendError> {
        let mut client = Client::builder()
            .user_agent(concat!("brokkr/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .no_proxy()
            .no_gzip()
            .referer(false)
            .retry(reqwest::retry::never())
            // Each message uses a new connection, to an address that was checked for it.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(PolicyResolver { policy: policy.clone(), resolver }));
        if let Some(file) = authorities {
            let unreadable = |source| SendError::Certificates { file: file.to_owned(), source };
            let pem = std::fs::read(file).map_err(|error| unreadable(error.into()))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| unreadable(error.into()))?;
            client = client.tls_certs_merge(certificates);
        }
        Ok(Self { policy, client: client.build().map_err(SendError::Client)? })
    }

    pub async fn send(&self, message: &Message<'_>, now: Timestamp) -> SendOutcome {
        let started = Instant::now();
        let mut sent = self.answer(message, now).await;
        sent.attempt.millis = u32::try_from(started.elapsed().as_millis()).unwrap_or(u32::MAX);
        sent
    }

    async fn answer(&self, message: &Message<'_>, now: Timestamp) -> SendOutcome {
        let url = match self.policy.url(message.url) {
            Ok(mut url) => {
                // The fragment is for the body, and not part of a request.
                url.set_fragment(None);
                url
            }
            Err(refusal) => return SendOutcome::failed(refusal.to_string()),
        };
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(signature::ID, message.id)
            .header(signature::TIMESTAMP, now.as_second())
            .header(signature::SIGNATURE, signatures(message.secrets, message.id, now, message.body))
            .body(message.body.to_vec());
        match tokio::time::timeout(TIMEOUT, request.send()).await {
            Ok(Ok(response)) => judge(response).await,
            Ok(Err(error)) => SendOutcome::failed(describe(error)),
            Err(_) => SendOutcome::failed(format!("no response within {} seconds", TIMEOUT.as_secs())),
        }
    }
}

/// Evaluates the response by its status; an incomplete body does not matter.
async fn judge(response: Response) -> SendOutcome {
    let status = response.status();
    let retry_after = retry_after(&response);
    let error = (!status.is_success()).then(|| match status.is_redirection() {
        true => format!("the receiver returned {}; redirects are not followed", status.as_u16()),
        false => format!("the receiver returned {}", status.as_u16()),
    });
    let attempt = Attempt {
        delivered: status.is_success(),
        status: Some(status.as_u16()),
        error,
        millis: 0,
        answer: first_bytes(response).await,
    };
    SendOutcome { attempt, retry_after, gone: status == StatusCode::GONE }
}

async fn first_bytes(mut response: Response) -> String {
    let (mut read, mut kept) = (0, Vec::new());
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            kept.extend(chunk.iter().take(STORED_BYTES.saturating_sub(kept.len())));
            if read >= READ_BYTES {
                break;
            }
        }
    };
    // If the time is over, the bytes that were read so far are enough.
    let _ = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    String::from_utf8_lossy(&kept).replace('\0', "\u{fffd}")
}

fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Returns the chain of causes without the URL, which may contain a secret.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

//! A receiver of webhooks over TLS that records messages and responds as the test wants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brokkr_broker::args::webhooks::WebhookArgs;
use brokkr_testkit::scripted::listener;
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Attempt, Scratch, eventually};
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;

pub const SOON: Duration = Duration::from_secs(60);
pub const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[derive(Clone, Debug)]
pub struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a message is JSON")
    }

    pub fn kind(&self) -> String {
        // In the formats of chats and pagers, a message has no type.
        self.json()["type"].as_str().unwrap_or("another format").to_owned()
    }

    /// Verifies the signature as a receiver does, over the received bytes.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(&secret["whsec_".len()..]).expect("base64");
        let signed =
            [format!("{}.{}.", self.id(), self.header("webhook-timestamp")).as_bytes(), &self.body[..]]
                .concat();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed);
        let expected = format!("v1,{}", STANDARD.encode(tag.as_ref()));
        self.header("webhook-signature").split(' ').any(|signature| signature == expected)
    }
}

#[derive(Clone, Debug)]
pub enum Answer {
    Status(u16),
    Redirect(String),
    /// Never responds.
    Hang,
    /// Responds with 200 and an endless body.
    Endless,
}

#[derive(Debug)]
struct Memory {
    answer: Mutex<Answer>,
    seen: Mutex<Vec<Received>>,
}

#[derive(Debug)]
pub struct Receiver {
    pub url: String,
    pub port: u16,
    memory: Arc<Memory>,
    server: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Certificates of receivers, and settings of a broker that trusts them.
pub struct Trust {
    authority: Authority,
    scratch: Scratch,
}

impl Trust {
    pub fn new() -> Result<Self> {
        Ok(Self { authority: Authority::new("receivers")?, scratch: Scratch::new("webhooks")? })
    }

    /// Returns settings of a broker that may reach local receivers and announces failures after `grace`.
    pub fn args(&self, grace: Duration) -> Result<WebhookArgs> {
        Ok(WebhookArgs {
            secret_key: Some(KEY.into()),
            webhook_networks: vec!["127.0.0.0/8".parse()?],
            webhook_any_port: true,
            webhook_ca: Some(self.scratch.write("ca.crt", self.authority.pem())?),
            webhook_grace: grace,
            webhook_http: false,
            ..WebhookArgs::default()
        })
    }

    /// As `args`, with the times of alerts.
    pub fn alert_args(&self, grace: Duration, gather: Duration, interval: Duration) -> Result<WebhookArgs> {
        Ok(WebhookArgs { alert_gather: gather, alert_interval: interval, ..self.args(grace)? })
    }

    pub async fn receiver(&self, answer: Answer) -> Result<Receiver> {
        let identity = self.authority.server(&self.scratch, "receiver", &["receiver.test"])?;
        let memory = Arc::new(Memory { answer: Mutex::new(answer), seen: Mutex::default() });
        let router = Router::new().fallback(receive).with_state(Arc::clone(&memory));
        let (address, server) = listener::serve(&identity, router).await?;
        let port = address.port();
        Ok(Receiver { url: format!("https://localhost:{port}/hooks/brokkr"), port, memory, server })
    }
}

impl Receiver {
    pub fn answer(&self, answer: Answer) {
        *self.memory.answer.lock().unwrap() = answer;
    }

    pub fn seen(&self) -> Vec<Received> {
        self.memory.seen.lock().unwrap().clone()
    }

    pub fn kinds(&self) -> Vec<String> {
        self.seen().iter().map(Received::kind).collect()
    }

    /// Waits for `count` messages.
    pub async fn got(&self, count: usize) -> Result<Vec<Received>> {
        eventually(SOON, "messages to a webhook", async || {
            let seen = self.seen();
            if seen.len() >= count {
                Attempt::Done(seen)
            } else {
                Attempt::NotYet(format!("{:?}", self.kinds()))
            }
        })
        .await
        .with_context(|| format!("{count} messages were expected"))
    }
}

async fn receive(State(memory): State<Arc<Memory>>, headers: HeaderMap, body: Bytes) -> Response {
    memory.seen.lock().unwrap().push(Received { headers, body });
    let answer = memory.answer.lock().unwrap().clone();
    match answer {
        Answer::Status(status) => {
            (StatusCode::from_u16(status).expect("a status"), "thank you").into_response()
        }
        Answer::Redirect(to) => (StatusCode::FOUND, [("location", to)]).into_response(),
        Answer::Hang => std::future::pending().await,
        Answer::Endless => {
            let endless =
                futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 4096])));
            Body::from_stream(endless.boxed()).into_response()
        }
    }
}

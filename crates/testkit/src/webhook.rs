//! A webhook of the API server, for admission or conversion, over TLS that the API server verifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use axum::extract::State;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::scratch::Scratch;
use crate::scripted::listener::serve;
use crate::tls::Authority;

/// A running webhook; it ends when it is dropped.
pub struct Webhook {
    client_config: Value,
    state: Shared,
    server: JoinHandle<()>,
}

/// Returns the response to the request of a review; none to never respond.
type Respond = dyn Fn(&Value) -> Option<Value> + Send + Sync;

#[derive(Clone)]
struct Shared {
    respond: Arc<Respond>,
    calls: Arc<AtomicUsize>,
}

impl Webhook {
    /// Starts a webhook. `respond` returns the response to the request of a review; none to never respond.
    pub async fn start(respond: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static) -> Result<Self> {
        let (authority, scratch) = (Authority::new("webhooks")?, Scratch::new("webhook")?);
        let identity = authority.server(&scratch, "webhook", &[])?;
        let state = Shared { respond: Arc::new(respond), calls: Arc::default() };
        let router = Router::new().fallback(review).with_state(state.clone());
        let (address, server) = serve(&identity, router).await?;
        let bundle = STANDARD.encode(authority.pem());
        let client_config = json!({"url": format!("https://{address}/review"), "caBundle": bundle});
        Ok(Self { client_config, state, server })
    }

    /// Returns the `clientConfig` for a webhook configuration or a conversion.
    pub fn client_config(&self) -> Value {
        self.client_config.clone()
    }

    /// Returns how often the API server has called it.
    pub fn calls(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn review(State(state): State<Shared>, Json(review): Json<Value>) -> Json<Value> {
    state.calls.fetch_add(1, Ordering::SeqCst);
    let Some(mut response) = (state.respond)(&review["request"]) else {
        return std::future::pending().await;
    };
    response["uid"] = review["request"]["uid"].clone();
    Json(json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))
}

/// Allows an admission, with changes to the object as a JSON Patch.
pub fn mutate(patch: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

/// Refuses an admission, and asks to try again after this many seconds.
pub fn try_later(seconds: u32) -> Value {
    let status = json!({
        "code": 429, "reason": "TooManyRequests", "message": "try again later",
        "details": {"retryAfterSeconds": seconds},
    });
    json!({"allowed": false, "status": status})
}

/// Converts the objects of a conversion request, each with this function from the object and the desired `apiVersion`.
pub fn convert(request: &Value, one: impl Fn(&Value, &str) -> Value) -> Value {
    let version = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().into_iter().flatten();
    let converted: Vec<Value> = objects.map(|object| one(object, version)).collect();
    json!({"result": {"status": "Success"}, "convertedObjects": converted})
}

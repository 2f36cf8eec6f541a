//! Clients that make changes: each change is repeated with the same idempotency key, at the replicas in turn, until its outcome
//! is known. Every attempt is recorded in the history.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::protocol::header;
use brokkr_api::stacks::Stack;
use brokkr_api::{PositionToken, Problem, SequenceId};
use brokkr_testkit::history::{Acknowledgement, Change, Outcome, Recorder, Refusal, StackRead};
use brokkr_testkit::unique;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A request without a response in this time has an unknown outcome.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);
/// Stacks that all writers share.
pub const STACKS: [&str; 4] = ["web", "shop", "mail", "base"];

/// A client with a token for both replicas.
#[derive(Clone)]
pub struct Caller {
    pub http: Vec<reqwest::Client>,
    pub base: Vec<String>,
    pub token: String,
    pub recorder: Arc<Recorder>,
    /// The position of each object that was acknowledged; a read with it must not show less.
    pub written: Arc<Mutex<HashMap<SequenceId, PositionToken>>>,
}

/// The request for one change.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    pub key: String,
    /// A text that occurs only in its contents; empty if it has no contents.
    pub mark: String,
    recorded: Change,
    method: Method,
    path: String,
    body: Vec<u8>,
}

impl ChangeRequest {
    fn new(recorded: Change, method: Method, path: String, body: Vec<u8>) -> Self {
        Self { key: unique("key"), mark: String::new(), recorded, method, path, body }
    }

    /// Returns a submission with unique contents of about this many bytes.
    pub fn submit(stack: &str, bytes: usize) -> Self {
        let mut filling = String::new();
        while filling.len() < bytes {
            filling.push_str(&format!("{:016x}", rand::random::<u64>()));
        }
        let mark = unique("thing");
        let yaml = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {mark}\n  namespace: default\ndata:\n  filling: \"{filling}\"\n"
        );
        let recorded = Change::Submit { stack: stack.into(), content: Checksum::of(yaml.as_bytes()) };
        let path = format!("stacks/{stack}/deployment-objects");
        Self { mark, ..Self::new(recorded, Method::POST, path, yaml.into_bytes()) }
    }

    pub fn roll_back(stack: &str) -> Self {
        let body = json!({ "keep_open": true }).to_string().into_bytes();
        let path = format!("stacks/{stack}/roll-back");
        Self::new(Change::RollBack { stack: stack.into() }, Method::POST, path, body)
    }

    pub fn target(stack: &str, selectors: &[&str]) -> Self {
        let body = json!({ "selectors": selectors }).to_string().into_bytes();
        let selectors = selectors.iter().map(|text| (*text).to_owned()).collect();
        let recorded = Change::Target { stack: stack.into(), selectors };
        Self::new(recorded, Method::PUT, format!("stacks/{stack}/targets"), body)
    }

    pub fn delete(stack: &str) -> Self {
        let recorded = Change::Delete { stack: stack.into() };
        Self::new(recorded, Method::DELETE, format!("stacks/{stack}"), Vec::new())
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Parses the response to this change.
    fn acknowledgement(&self, body: &[u8], position: Option<PositionToken>) -> Result<Acknowledgement> {
        let position = position.map(|token| token.position);
        if matches!(self.recorded, Change::Target { .. }) {
            let stack: Stack = serde_json::from_slice(body)?;
            let selectors = stack.targets.selectors.iter().map(ToString::to_string).collect();
            return Ok(Acknowledgement::Targets { stack: stack.id, selectors, position });
        }
        let object: DeploymentObject = serde_json::from_slice(body)?;
        let (stack, sequence, content) = (object.stack_id, object.sequence_id, object.checksum);
        Ok(Acknowledgement::Object { stack, sequence, content, position })
    }
}

impl Caller {
    pub fn request(&self, replica: usize, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = if path.starts_with('/') {
            format!("{}{path}", self.base[replica])
        } else {
            format!("{}/api/v1/{path}", self.base[replica])
        };
        self.http[replica].request(method, url).bearer_auth(&self.token).timeout(RESPONSE_TIMEOUT)
    }

    pub async fn get(&self, replica: usize, path: &str) -> Result<(u16, Value)> {
        let response = self.request(replica, Method::GET, path).send().await?;
        let status = response.status().as_u16();
        let body = response.bytes().await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn written(&self) -> MutexGuard<'_, HashMap<SequenceId, PositionToken>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads with the position of a write, as its author does who waits for the result; returns the broker's hold.
    pub async fn hold(&self, replica: usize, written: Option<SequenceId>) -> Result<Value> {
        let position = written.and_then(|sequence| self.written().get(&sequence).copied());
        let read = self.request(replica, Method::GET, "stacks");
        read.header(header::POSITION, position.unwrap_or_default().to_string()).send().await?;
        let (status, system) = self.get(replica, "system").await?;
        ensure!(status == 200, "{status} {system}");
        Ok(system["hold"].clone())
    }

    /// Reads a stack with the position of a write, as its author does. Faults may prevent it; a stack that is read is recorded.
    pub async fn read_after(&self, replica: usize, name: &str, written: &Outcome) {
        let Outcome::Acknowledged(Acknowledgement::Object { stack, sequence, .. }) = written else { return };
        let Some(token) = self.written().get(sequence).copied() else { return };
        let read = self.request(replica, Method::GET, &format!("stacks/{name}"));
        let Ok(response) = read.header(header::POSITION, token.to_string()).send().await else { return };
        if let Ok(read) = response.json::<Stack>().await
            && read.id == *stack
        {
            let newest = read.sequence_id;
            self.recorder.read(StackRead { replica, stack: *stack, asked: token.position, newest });
        }
    }

    /// Creates a stack, with retries. A repetition changes nothing, so it is not recorded.
    pub async fn put_stack(&self, first: usize, stack: &str) -> Result<()> {
        for attempt in first.. {
            let replica = attempt % self.base.len();
            let request = self.request(replica, Method::PUT, &format!("stacks/{stack}")).json(&json!({}));
            let answer = request.send().await;
            match answer.map(|answer| answer.status()) {
                Ok(status) if status.is_success() => break,
                Ok(status) if status.is_client_error() && status != 429 => {
                    anyhow::bail!("cannot create the stack {stack}: {status}")
                }
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        Ok(())
    }

    /// Makes one attempt without recording it.
    pub async fn attempt(&self, replica: usize, change: &ChangeRequest) -> Outcome {
        let request = self
            .request(replica, change.method.clone(), &change.path)
            .header(header::IDEMPOTENCY_KEY, &change.key)
            .header(
                "content-type",
                if change.method == Method::POST { "application/yaml" } else { "application/json" },
            )
            .body(change.body.clone());
        let answered = async {
            let response = request.send().await?;
            let status = response.status();
            let position = response.headers().get(header::POSITION).and_then(|text| text.to_str().ok());
            let position: Option<PositionToken> = position.and_then(|text| text.parse().ok());
            let body = response.bytes().await?;
            Ok::<_, reqwest::Error>((status, body, position))
        };
        match answered.await {
            Err(error) => Outcome::Unknown(format!("{error:?}")),
            Ok((status, body, position)) if status.is_success() => {
                match change.acknowledgement(&body, position) {
                    Ok(acknowledgement) => {
                        if let (Acknowledgement::Object { sequence, .. }, Some(position)) =
                            (&acknowledgement, position)
                        {
                            self.written().insert(*sequence, position);
                        }
                        Outcome::Acknowledged(acknowledgement)
                    }
                    Err(error) => Outcome::Unknown(format!("{status}, unreadable: {error}")),
                }
            }
            Ok((status, body, _)) => {
                let text = format!("{status}: {}", String::from_utf8_lossy(&body));
                // After an overload error the same request may succeed later.
                let is_permanent = status.is_client_error() && status != 429 && status != 408;
                if is_permanent {
                    let problem = serde_json::from_slice::<Problem>(&body).ok();
                    Outcome::Refused(Refusal { code: problem.map(|problem| problem.code), text })
                } else {
                    Outcome::Unknown(text)
                }
            }
        }
    }

    /// Repeats a change until its outcome is known, and returns the outcome.
    pub async fn send_until_known(&self, first: usize, change: ChangeRequest) -> Outcome {
        let operation = self.recorder.begin(&change.key, change.recorded.clone());
        let mut replica = first % self.base.len();
        loop {
            let began = self.recorder.now();
            let outcome = self.attempt(replica, &change).await;
            self.recorder.record_attempt(operation, replica, began, outcome.clone());
            if !matches!(outcome, Outcome::Unknown(_)) {
                return outcome;
            }
            replica = (replica + 1) % self.base.len();
            tokio::time::sleep(Duration::from_millis(rand::random_range(50..200))).await;
        }
    }
}

/// Writes until it is stopped, and finishes the current change.
pub async fn write_until_stopped(
    caller: Caller,
    number: usize,
    seed: u64,
    bytes: usize,
    stop: CancellationToken,
) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed ^ u64::try_from(number)?);
    for count in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let replica = random.random_range(0..2);
        let stack = STACKS[random.random_range(0..STACKS.len())];
        match random.random_range(0..100) {
            0..78 => {
                let outcome = caller.send_until_known(replica, ChangeRequest::submit(stack, bytes)).await;
                if random.random_bool(0.3) {
                    caller.read_after(random.random_range(0..2), stack, &outcome).await;
                }
            }
            78..86 => drop(caller.send_until_known(replica, ChangeRequest::roll_back(stack)).await),
            86..94 => {
                let selectors: &[&str] =
                    [&["group=a"][..], &["group=b"], &["group=a", "group=b"]][random.random_range(0..3)];
                caller.send_until_known(replica, ChangeRequest::target("base", selectors)).await;
            }
            _ => {
                // The whole life cycle of a stack.
                let stack = format!("brief-{number}-{count}");
                caller.put_stack(replica, &stack).await?;
                caller.send_until_known(replica, ChangeRequest::target(&stack, &["group=a"])).await;
                caller.send_until_known(replica, ChangeRequest::submit(&stack, bytes)).await;
                caller.send_until_known(replica, ChangeRequest::delete(&stack)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(5..40))).await;
    }
    Ok(())
}

/// Returns the sequence id of the acknowledged object.
pub fn object(outcome: &Outcome) -> Result<brokkr_api::SequenceId> {
    match outcome {
        Outcome::Acknowledged(Acknowledgement::Object { sequence, .. }) => Some(*sequence),
        _ => None,
    }
    .with_context(|| format!("not an object: {outcome:?}"))
}

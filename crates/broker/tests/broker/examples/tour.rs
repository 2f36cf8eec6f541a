//! A tour through the whole API: a shop with two clusters, from its first token to the time after a restore.
//!
//! | chapter    | contents                                                                     |
//! |------------|------------------------------------------------------------------------------|
//! | `people`   | a project, its tokens, and the caller's identity                             |
//! | `fleet`    | two agents join, and the project is granted them                             |
//! | `stacks`   | a stack is delivered, fails in a new version, and is rolled back             |
//! | `webhooks` | a webhook receives messages about it                                         |
//! | `rollouts` | another stack gets a new version in waves                                    |
//! | `agent_upgrades` | an agent is offered a new image                                        |
//! | `upkeep`   | keys are rotated, a stack is deleted, the audit log is read                  |
//! | `restored` | the database was restored, and stacks are settled                            |
//!
//! Each route is recorded once, by the calls of [`Tour`]; other calls use the helpers of the harness.

mod agent_upgrades;
mod fleet;
mod people;
mod restored;
mod rollouts;
mod stacks;
mod upkeep;
mod webhooks;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::protocol::YAML_MEDIA_TYPE;
use brokkr_api::report::{Report, Transition};
use brokkr_api::tokens::NewApiToken;
use brokkr_api::{SequenceId, StackId};
use brokkr_testkit::Postgres;
use jiff::Timestamp;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::recorder::{Example, Recorder};
use crate::harness::{Agent, Caller, Harness, read};
use crate::webhooks::receiver::{Answer, Receiver, Trust};

const SOON: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(3600);

/// The callers of the tour, and the recorder.
struct Tour {
    harness: Harness,
    /// The administrator of the installation.
    ops: Caller,
    receiver: Receiver,
    recorder: Recorder,
    last: Cell<i64>,
    _trust: Trust,
}

pub async fn walk() -> Result<BTreeMap<String, Example>> {
    let tour = Tour::open().await?;
    let owner = people::walk(&tour).await?;
    let (mut eu, us) = fleet::walk(&tour, &owner).await?;
    let web = stacks::walk(&tour, &owner, &mut eu, &us).await?;
    webhooks::walk(&tour, &owner).await?;
    rollouts::walk(&tour, &owner).await?;
    agent_upgrades::walk(&tour, &us).await?;
    upkeep::walk(&tour, &owner, &us).await?;
    restored::walk(&tour, &mut eu, web).await?;
    tour.end()
}

impl Tour {
    async fn open() -> Result<Self> {
        let trust = Trust::new()?;
        let receiver = trust.receiver(Answer::Status(204)).await?;
        let harness = Harness::open_with(Postgres::shared().await?, trust.args(GRACE)?).await?;
        let recorder = Recorder::start();
        let wanted = json!({ "name": "ops", "role": "admin" });
        let made: NewApiToken = read(harness.admin.send(Method::POST, "api-tokens", &wanted).await?).await?;
        let ops = Caller::new(harness.server.address, Some(made.token));
        Ok(Self { harness, ops, receiver, recorder, last: Cell::default(), _trust: trust })
    }

    fn end(self) -> Result<BTreeMap<String, Example>> {
        let whole = self.receiver.url.clone();
        let short = whole.trim_end_matches("/hooks/brokkr").to_owned();
        self.recorder.examples(vec![
            (whole, "https://hooks.example.com/brokkr".to_owned()),
            (short, "https://hooks.example.com".to_owned()),
        ])
    }

    async fn get(&self, caller: &Caller, path: &str) -> Result<Value> {
        self.recorder.ask(caller.request(Method::GET, path)).await
    }

    async fn put(&self, caller: &Caller, path: &str, body: Value) -> Result<Value> {
        self.recorder.ask(caller.signed(caller.request(Method::PUT, path).json(&body))?).await
    }

    async fn post(&self, caller: &Caller, path: &str, body: Value) -> Result<Value> {
        self.recorder.ask(caller.signed(caller.request(Method::POST, path).json(&body))?).await
    }

    async fn patch(&self, caller: &Caller, path: &str, body: Value) -> Result<Value> {
        self.recorder.ask(caller.signed(caller.request(Method::PATCH, path).json(&body))?).await
    }

    async fn delete(&self, caller: &Caller, path: &str) -> Result<Value> {
        self.recorder.ask(caller.request(Method::DELETE, path)).await
    }

    /// Returns the current time, later on each call, in microseconds like all times of the broker.
    fn now(&self) -> Timestamp {
        self.last.set(Timestamp::now().as_microsecond().max(self.last.get() + 1));
        Timestamp::from_microsecond(self.last.get()).expect("a time of today")
    }

    /// Returns the report of an agent about a version, with its hops.
    fn report(&self, agent: &Agent, stack: StackId, sequence: SequenceId, transition: Transition) -> Report {
        let mut report = agent.report(stack, sequence, transition.clone(), 0);
        (report.hops.fetched, report.hops.verified) = (Some(self.now()), Some(self.now()));
        if matches!(transition, Transition::Applied | Transition::Healthy) {
            report.hops.applied = Some(self.now());
        }
        report.at = self.now();
        report.hops.healthy = (transition == Transition::Healthy).then_some(report.at);
        report.id = report.derived_id(agent.id);
        report
    }
}

/// Returns the request of a submission.
fn submission(caller: &Caller, stack: &str, yaml: &str) -> RequestBuilder {
    caller
        .request(Method::POST, &format!("stacks/{stack}/deployment-objects"))
        .header("content-type", YAML_MEDIA_TYPE)
        .body(yaml.to_owned())
}

async fn submit(caller: &Caller, stack: &str, yaml: &str) -> Result<DeploymentObject> {
    read(submission(caller, stack, yaml).send().await?).await
}

/// A manifest of the shop.
fn manifest(name: &str, version: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
        - name: {name}
          image: shop/{name}:{version}
"
    )
}

//! The lower bound: bare server-side-apply PATCHes with the agent's concurrency. Nothing is planned, recorded or read back.
//! Also deletes the objects afterwards, so that every measurement starts from the same cluster.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::{Attempt, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::workload::{Object, Workload};

const CLEAR_TIMEOUT: Duration = Duration::from_secs(600);
/// Of every Deployment of the workload.
const REPLICAS: u32 = 3;
const STACK: &str = "0199c5a7-0000-7000-8000-000000000001";

/// An HTTP client that applies objects.
#[derive(Clone)]
pub struct Bare {
    client: Client,
    in_flight: usize,
    /// The agent whose label and annotations it adds, as the fence requires of the agent's account.
    agent: Option<String>,
    watches: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    DryRun,
    Write,
}

impl Bare {
    pub fn new(client: Client, in_flight: usize) -> Self {
        Self { client, in_flight, agent: None, watches: false }
    }

    /// Returns a client that adds the ownership metadata of this agent.
    pub fn for_agent(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }

    /// Returns a client that also watches what it writes.
    pub fn watching(self) -> Self {
        Self { watches: true, ..self }
    }

    /// Applies namespaces, then the rest; returns the seconds.
    pub async fn create(&self, workload: &Workload) -> Result<f64> {
        let (namespaces, rest) = workload.namespaces_and_rest();
        let _watches = self.watch();
        let started = Instant::now();
        self.apply(&namespaces, Mode::Write).await?;
        self.apply(&rest, Mode::Write).await?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Applies the namespaces, then dry-runs the rest; returns the seconds of the dry runs.
    pub async fn dry_run(&self, workload: &Workload) -> Result<f64> {
        let (namespaces, rest) = workload.namespaces_and_rest();
        self.apply(&namespaces, Mode::Write).await?;
        let _watches = self.watch();
        let started = Instant::now();
        self.apply(&rest, Mode::DryRun).await?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Sends one PATCH for each object, concurrently, each in a task of its own.
    pub async fn apply(&self, objects: &[&Object], mode: Mode) -> Result<()> {
        let dry = if mode == Mode::DryRun { "&dryRun=All" } else { "" };
        let requests = objects.iter().map(|object| {
            let path = format!("{}?fieldManager=bare&force=true{dry}", object.path());
            (path, self.body(object).to_string())
        });
        futures::stream::iter(requests)
            .map(|(path, body)| {
                let client = self.client.clone();
                tokio::spawn(async move { patch(&client, &path, body).await })
            })
            .buffer_unordered(self.in_flight)
            .map(|joined| joined?)
            .try_collect()
            .await
    }

    /// Returns the body, with the ownership metadata if this client writes for an agent.
    fn body(&self, object: &Object) -> Value {
        let mut body = object.body.clone();
        if let Some(agent) = &self.agent {
            body["metadata"]["labels"]["brokkr.io/agent"] = json!(agent);
            let annotations = &mut body["metadata"]["annotations"];
            annotations["brokkr.io/stack-id"] = json!(STACK);
            annotations["brokkr.io/sequence"] = json!("1");
            annotations["brokkr.io/checksum"] = json!("0".repeat(64));
            annotations["brokkr.io/id"] = json!(object.path());
        }
        body
    }

    /// Starts a watch for each kind of the workload, until the returned tasks are dropped.
    fn watch(&self) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        let selector = if self.agent.is_some() { "&labelSelector=brokkr.io/agent" } else { "" };
        let kinds = ["api/v1/namespaces", "api/v1/configmaps", "api/v1/services", "apis/apps/v1/deployments"];
        for kind in kinds.into_iter().filter(|_| self.watches) {
            let (client, path) = (self.client.clone(), format!("/{kind}?watch=1{selector}"));
            watches.spawn(async move {
                let Ok(request) = Request::get(&path).body(Body::empty()) else { return };
                let Ok(answer) = client.send(request).await else { return };
                let mut body = answer.into_body();
                while let Some(Ok(_)) = body.frame().await {}
            });
        }
        watches
    }

    /// Makes the Deployments ready, because no controllers run that would do so; otherwise the agent would
    /// wait for them for ever.
    pub async fn make_ready(&self, workload: &Workload) -> Result<()> {
        let ready = workload.objects.iter().filter(|object| object.body["kind"] == "Deployment");
        futures::stream::iter(ready)
            .map(|object| self.set_status(object, REPLICAS, 0))
            .buffer_unordered(self.in_flight)
            .try_collect()
            .await
    }

    /// Sets the status of a Deployment: its ready replicas, and a number that no decision depends on.
    pub async fn set_status(&self, object: &Object, ready: u32, number: usize) -> Result<()> {
        let path = format!("{}/status?fieldManager=controller&force=true", object.path());
        let status = json!({
            "observedGeneration": 1, "replicas": REPLICAS, "updatedReplicas": REPLICAS,
            "readyReplicas": ready, "availableReplicas": ready,
            "conditions": [{"type": "Heartbeat", "status": "True", "message": number.to_string()}],
        });
        let meta = json!({"name": object.name, "namespace": object.namespace});
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "status": status});
        patch(&self.client, &path, body.to_string()).await
    }

    /// Ends the deletion of the namespaces with the prefix, as a namespace controller would, and waits until they are gone.
    /// They are deleted by another client, which has emptied them.
    pub async fn finalize(&self, prefix: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        eventually(CLEAR_TIMEOUT, &format!("the namespaces {prefix}… to be gone"), async || {
            let all = match api.list(&ListParams::default()).await {
                Ok(list) => list.items,
                Err(error) => return Attempt::NotYet(error.to_string()),
            };
            let (mut left, mut refused) = (0, Vec::new());
            for namespace in all.into_iter().filter(|namespace| namespace.name_any().starts_with(prefix)) {
                left += 1;
                if namespace.metadata.deletion_timestamp.is_some() {
                    refused.extend(self.finalize_one(&namespace.name_any()).await.err());
                }
            }
            if left == 0 { Attempt::Done(()) } else { Attempt::NotYet(format!("{left} left; {refused:?}")) }
        })
        .await
    }

    async fn finalize_one(&self, name: &str) -> Result<()> {
        let done = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []},
        });
        self.send(Method::PUT, &format!("/api/v1/namespaces/{name}/finalize"), &done).await
    }

    /// Deletes every namespace with the prefix and its contents, and waits until they are gone. It deletes
    /// the contents itself, because the controllers that would do so may not run.
    pub async fn clear(&self, prefix: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        eventually(CLEAR_TIMEOUT, &format!("the namespaces {prefix}… to be gone"), async || {
            let all = match api.list(&ListParams::default()).await {
                Ok(list) => list.items,
                Err(error) => return Attempt::NotYet(error.to_string()),
            };
            let names: Vec<String> =
                all.iter().map(ResourceExt::name_any).filter(|name| name.starts_with(prefix)).collect();
            if names.is_empty() {
                return Attempt::Done(());
            }
            let cleared = futures::stream::iter(&names).map(|name| self.clear_one(name)).buffer_unordered(4);
            let refused: Vec<String> =
                cleared.filter_map(async |done| done.err().map(|error| format!("{error:#}"))).collect().await;
            Attempt::NotYet(format!("{} left; {refused:?}", names.len()))
        })
        .await
    }

    async fn clear_one(&self, name: &str) -> Result<()> {
        for kind in ["apis/apps/v1/{}/deployments", "api/v1/{}/services", "api/v1/{}/configmaps"] {
            let path = format!("/{}", kind.replace("{}", &format!("namespaces/{name}")));
            self.send(Method::DELETE, &path, &json!({})).await?;
        }
        let path = format!("/api/v1/namespaces/{name}");
        self.send(Method::DELETE, &path, &json!({})).await?;
        self.finalize_one(name).await
    }

    /// Sends a request. An object that is already gone is not an error; neither is a conflict, because
    /// [`Bare::clear`] tries again.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string().into_bytes()))?;
        let answer = self.client.send(request).await?;
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        let gone = [404, 409].contains(&status.as_u16());
        ensure!(status.is_success() || gone, "{path}: {status} {}", String::from_utf8_lossy(&text));
        Ok(())
    }
}

async fn patch(client: &Client, path: &str, body: String) -> Result<()> {
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .header(http::header::ACCEPT, "application/json")
        .body(Body::from(body.into_bytes()))?;
    let answer = client.send(request).await.with_context(|| format!("PATCH {path}"))?;
    let status = answer.status();
    let text = answer.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "PATCH {path}: {status} {}", String::from_utf8_lossy(&text));
    Ok(())
}

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

use crate::workload::{Object, Workload};

const CLEAR_TIMEOUT: Duration = Duration::from_secs(600);

/// An HTTP client that applies objects.
#[derive(Clone)]
pub struct Bare {
    client: Client,
    in_flight: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    DryRun,
    Write,
}

impl Bare {
    pub fn new(client: Client, in_flight: usize) -> Self {
        Self { client, in_flight }
    }

    /// Applies namespaces, then the rest; returns the seconds.
    pub async fn create(&self, workload: &Workload) -> Result<f64> {
        let (namespaces, rest) = workload.namespaces_and_rest();
        let started = Instant::now();
        self.apply(&namespaces, Mode::Write).await?;
        self.apply(&rest, Mode::Write).await?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Applies the namespaces, then dry-runs the rest; returns the seconds of the dry runs.
    pub async fn dry_run(&self, workload: &Workload) -> Result<f64> {
        let (namespaces, rest) = workload.namespaces_and_rest();
        self.apply(&namespaces, Mode::Write).await?;
        let started = Instant::now();
        self.apply(&rest, Mode::DryRun).await?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Sends one PATCH for each object, concurrently, each in a task of its own.
    pub async fn apply(&self, objects: &[&Object], mode: Mode) -> Result<()> {
        let dry = if mode == Mode::DryRun { "&dryRun=All" } else { "" };
        let requests = objects.iter().map(|object| {
            let path = format!("{}?fieldManager=bare&force=true{dry}", object.path());
            (path, object.body.to_string())
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

    /// Makes the Deployments ready, because no controllers run that would do so; otherwise the agent would
    /// wait for them for ever.
    pub async fn make_ready(&self, workload: &Workload) -> Result<()> {
        let ready = workload.objects.iter().filter(|object| object.body["kind"] == "Deployment");
        let (client, all) = (&self.client, 3);
        futures::stream::iter(ready)
            .map(|object| async move {
                let path = format!("{}/status?fieldManager=controller&force=true", object.path());
                let status = json!({
                    "observedGeneration": 1, "replicas": all, "updatedReplicas": all,
                    "readyReplicas": all, "availableReplicas": all,
                });
                let meta = json!({"name": object.name, "namespace": object.namespace});
                let body = json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "status": status,
                });
                patch(client, &path, body.to_string()).await
            })
            .buffer_unordered(self.in_flight)
            .try_collect()
            .await
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
        let done = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []},
        });
        self.send(Method::PUT, &format!("{path}/finalize"), &done).await
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

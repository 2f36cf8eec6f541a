//! The cause of an unready workload, read from a real cluster: a scheduler without a matching node, a quota that refuses Pods,
//! and, since nothing pulls images here, Pods with the status that a kubelet would write.

use anyhow::Result;
use brokkr_agent::diagnose;
use brokkr_agent::execute;
use brokkr_agent::model::Cause;
use brokkr_agent::resource::{Kind, Served};
use brokkr_testkit::{Attempt, Cluster, eventually, unique};
use kube::Api;
use serde_json::{Value, json};

use brokkr_testkit::world::{WAIT_TIMEOUT, deployment_yaml, namespace_yaml, set_container_status};

/// A Deployment `web` with one replica in its own namespace.
struct Fixture {
    client: kube::Client,
    api: execute::Cluster,
    space: String,
}

impl Fixture {
    /// Applies `first` before the Deployment; `change` makes the Deployment unhealthy.
    async fn create(first: impl Fn(&str) -> String, change: impl Fn(String) -> String) -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let space = unique("causes");
        cluster.apply(&format!("{}{}", namespace_yaml(&space), first(&space))).await?;
        cluster.apply(&change(deployment_yaml(&space, "web", 1))).await?;
        let client = cluster.admin().await?;
        Ok(Self { api: execute::Cluster::new(client.clone(), 4), client, space })
    }

    async fn diagnose(&self) -> Result<Option<Cause>> {
        let kind = Kind::from(Served {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
            namespaced: true,
        });
        let key = format!("apps/Deployment/{}/web", self.space).parse()?;
        let body = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}});
        let found = diagnose::diagnose(&self.api, &kind, &key, &body).await;
        found.map_err(|failure| anyhow::anyhow!("{failure:?}"))
    }

    async fn wait_for_cause(&self, reason: &str) -> Result<Cause> {
        eventually(WAIT_TIMEOUT, &format!("the cause {reason}"), async || match self.diagnose().await {
            Ok(Some(cause)) if cause.reason.code() == reason => Attempt::Done(cause),
            other => Attempt::NotYet(format!("{other:?}")),
        })
        .await
    }

    async fn set_container_status(&self, container: Value) -> Result<()> {
        set_container_status(&self.client, &self.space, "registry.example/web:1", container).await
    }
}

fn nothing(_: &str) -> String {
    String::new()
}

fn in_template(yaml: &str, lines: &str) -> String {
    let changed =
        yaml.replace("    spec:\n      containers:", &format!("    spec:\n{lines}      containers:"));
    assert_ne!(changed, yaml);
    changed
}

/// Keeps the Pod off every node, so that kwok does not write its status.
fn unschedulable(yaml: String) -> String {
    in_template(&yaml, "      schedulerName: nobody\n")
}

#[tokio::test]
async fn f6_the_scheduler_is_quoted_where_no_node_fits() -> Result<()> {
    let fixture =
        Fixture::create(nothing, |yaml| in_template(&yaml, "      nodeSelector: {no: such-node}\n")).await?;
    let cause = fixture.wait_for_cause("Unschedulable").await?;
    assert!(cause.message.to_string().contains("nodes are available"), "{cause:?}");
    Ok(())
}

#[tokio::test]
async fn f6_a_quota_that_refuses_pods_is_named() -> Result<()> {
    let quota = |space: &str| {
        format!(
            "---\napiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: none-left\n  namespace: {space}\n\
             spec:\n  hard: {{pods: \"0\"}}\n"
        )
    };
    let fixture = Fixture::create(quota, |yaml| yaml).await?;
    let cause = fixture.wait_for_cause("QuotaExceeded").await?;
    assert!(cause.message.to_string().contains("none-left"), "{cause:?}");
    Ok(())
}

#[tokio::test]
async fn f6_an_image_pull_failure_and_a_crash_are_reported_with_their_messages() -> Result<()> {
    let fixture = Fixture::create(nothing, unschedulable).await?;
    let words = "no such manifest: registry.example/web:1";
    fixture
        .set_container_status(json!({"state": {"waiting": {"reason": "ErrImagePull", "message": words}}}))
        .await?;
    let cause = fixture.wait_for_cause("ErrImagePull").await?;
    assert!(
        cause.message.to_string().contains("registry.example/web:1")
            && cause.message.to_string().contains(words),
        "{cause:?}"
    );

    let crashed = json!({"exitCode": 3, "reason": "Error", "message": "no DATABASE_URL\n"});
    fixture
        .set_container_status(json!({
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": crashed},
        }))
        .await?;
    let cause = fixture.wait_for_cause("CrashLoopBackOff").await?;
    assert!(
        cause.message.to_string().contains("exits with code 3, restarted 4 times: no DATABASE_URL"),
        "{cause:?}"
    );
    Ok(())
}

#[tokio::test]
async fn f6_a_healthy_workload_has_no_cause() -> Result<()> {
    let fixture = Fixture::create(nothing, |yaml| yaml).await?;
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(fixture.client.clone(), &fixture.space);
    eventually(WAIT_TIMEOUT, "the Deployment to be ready", async || {
        let live = deployments.get("web").await.ok().and_then(|live| live.status);
        live.and_then(|status| status.ready_replicas) == Some(1)
    })
    .await?;
    assert_eq!(fixture.diagnose().await?, None);
    Ok(())
}

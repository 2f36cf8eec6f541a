//! Tests of the Pod runner: its processes match the Pod's spec and end with the Pod.

use anyhow::{Context as _, Result};
use brokkr_testkit::agent::install;
use brokkr_testkit::pods::PodRun;
use brokkr_testkit::{Attempt, Cluster, Fleet, PodRunner, eventually, unique};
use serde_json::json;

use brokkr_testkit::world::{WAIT_TIMEOUT, config_map_yaml, namespace_yaml};

/// An agent as a Deployment: token and authority mounted, everything else by arguments and environment.
fn agent(home: &str, fleet: &Fleet, token: &str) -> Result<String> {
    let authority = std::fs::read_to_string(fleet.broker.authority_file())?;
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "join", "namespace": home},
            "stringData": {"token": token, "broker-url": fleet.broker.url()},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authority", "namespace": home},
            "data": {"ca.crt": authority},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "agent", "namespace": home},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {
                        "serviceAccountName": "brokkr-agent",
                        "containers": [{
                            "name": "agent",
                            "image": "registry.example/brokkr-agent:1",
                            "args": ["run", "--ca-file", "/etc/brokkr/authority/ca.crt", "--polling-interval=1s"],
                            "env": [
                                {"name": "BROKKR_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                                {"name": "BROKKR_BROKER_URL", "valueFrom": {"secretKeyRef": {"name": "join", "key": "broker-url"}}},
                                {"name": "BROKKR_JOIN_TOKEN_FILE", "value": "/etc/brokkr/join/token"},
                            ],
                            "volumeMounts": [
                                {"name": "join", "mountPath": "/etc/brokkr/join"},
                                {"name": "authority", "mountPath": "/etc/brokkr/authority"},
                            ],
                        }],
                        "volumes": [
                            {"name": "join", "secret": {"secretName": "join", "items": [{"key": "token", "path": "token"}]}},
                            {"name": "authority", "configMap": {"name": "authority"}},
                        ],
                    },
                },
            },
        }),
    ];
    Ok(objects.map(|object| format!("---\n{object}\n")).concat())
}

#[tokio::test]
async fn an_agent_in_a_pod_joins_delivers_is_restarted_and_ends_with_its_pod() -> Result<()> {
    let (cluster, fleet) = (Cluster::shared().await?, Fleet::start().await?);
    let (home, space) = (unique("brokkr-pods"), unique("space"));
    install(&cluster, &home, &[] as &[&str]).await?;
    let pods = PodRunner::start_in(&cluster, &home).await?;
    let token = fleet.join_token("shop-1", &[("env", "prod")]).await?;
    cluster.apply(&agent(&home, &fleet, &token)?).await?;

    let pod = pods.running("brokkr-agent").await?;
    fleet.active("shop-1").await.with_context(|| pod.describe())?;
    fleet
        .apply("web", "env=prod", &[namespace_yaml(&space), config_map_yaml(&space, "one", "1")].concat())
        .await?;

    pod.kill9();
    let again = |pod: &PodRun| pod.is_running() && pod.restarts() == 1;
    eventually(WAIT_TIMEOUT, "the agent to be started again", async || again(&pod)).await?;
    fleet
        .apply("web", "env=prod", &[namespace_yaml(&space), config_map_yaml(&space, "one", "2")].concat())
        .await?;

    cluster.kubectl(["delete", "deployment", "agent", "-n", &home]).await?.ok()?;
    pods.gone("brokkr-agent").await?;
    assert!(!pod.is_running());
    assert!(pod.log().contains("SIGTERM"), "it got no SIGTERM:\n{}", pod.log());
    Ok(())
}

/// A Pod with a missing Secret waits for it, and reports it.
#[tokio::test]
async fn a_pod_waits_for_a_missing_secret() -> Result<()> {
    let (cluster, home) = (Cluster::shared().await?, unique("brokkr-pods"));
    cluster.kubectl(["create", "namespace", &home]).await?.ok()?;
    let pods = PodRunner::start_in(&cluster, &home).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "broker", "namespace": home},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "broker", "image": "brokkr-broker", "args": ["config"],
                "env": [{"name": "BROKKR_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "late", "key": "url"}}}],
            }],
        },
    });
    cluster.apply(&pod.to_string()).await?;
    let wait_for_text = async |words: &str| {
        eventually(WAIT_TIMEOUT, words, async || {
            let text: String =
                pods.pods().iter().map(|pod| format!("{}{}", pod.describe(), pod.log())).collect();
            if text.contains(words) { Attempt::Done(()) } else { Attempt::NotYet(text) }
        })
        .await
    };
    wait_for_text("there is no Secret late").await?;
    let literal = "--from-literal=url=postgres://nobody@database.example/brokkr";
    cluster.kubectl(["create", "secret", "generic", "late", "-n", &home, literal]).await?.ok()?;
    // It ends at once and is restarted; its log is kept.
    wait_for_text("database_url = \"(set, not shown)\" # environment").await
}

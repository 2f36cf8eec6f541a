//! Brokkr itself in Pods: broker and agent from our images and charts, under their RBAC, security contexts, probes and limits.

use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_testkit::nodes::skipped;
use brokkr_testkit::{Attempt, eventually};

use crate::installation::{DEADLINE, Installation};

#[tokio::test]
async fn brokkr_runs_in_pods_and_recovers_from_what_happens_to_them() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let mut site = Installation::start().await?;
    eprintln!("{}", site.terminal.pods().await?);
    pod_is_deleted(&site).await?;
    node_is_drained(&mut site).await?;
    memory_is_exceeded(&site).await?;
    kubelets_and_api_server_are_killed(&mut site).await?;
    broker_is_upgraded_and_uninstalled(&mut site).await
}

async fn pod_is_deleted(site: &Installation) -> Result<()> {
    site.types("kubectl -n brokkr-system delete pod --all --wait=false").await?;
    site.delivers(2).await
}

/// The Pod of the agent is evicted, and starts on the other node.
async fn node_is_drained(site: &mut Installation) -> Result<()> {
    let node = "kubectl -n brokkr-system get pods --field-selector=status.phase=Running \
                -o jsonpath='{.items[0].spec.nodeName}'";
    let node = site.types(node).await?.stdout;
    site.types(&format!(
        "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --force --timeout=90s"
    ))
    .await?;
    site.forward_again().await?;
    site.delivers(3).await?;
    site.types(&format!("kubectl uncordon {node}")).await?;
    Ok(())
}

/// The agent gets too little memory for a large stack, is killed again and again, and gets enough.
async fn memory_is_exceeded(site: &Installation) -> Result<()> {
    let limit = |memory: &str| {
        format!(
            "kubectl -n brokkr-system set resources deployment brokkr-agent --limits=memory={memory} --requests=memory=4Mi
             kubectl -n brokkr-system rollout status deployment brokkr-agent --timeout=90s"
        )
    };
    let limits =
        "kubectl -n brokkr-system get deployment brokkr-agent -o jsonpath='{..resources.limits.memory}'";
    let limits = site.types(limits).await?.stdout;
    site.types(&limit("12Mi")).await?;
    site.terminal.scratch.write("large.yaml", large_manifest())?;
    site.types("brokkr apply large -f large.yaml --to-agent shop-1").await?;
    eventually(DEADLINE, "the agent to be killed", async || {
        let reasons = "kubectl -n brokkr-system get pods -o jsonpath='{..terminated.reason}'";
        match site.types(reasons).await {
            Ok(output) if output.stdout.contains("OOMKilled") => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    site.types(&limit(limits.trim())).await?;
    site.types("brokkr wait large --timeout 2m").await?;
    site.delivers(4).await
}

/// Returns a few megabytes of ConfigMaps.
fn large_manifest() -> String {
    let data = "0123456789abcdef".repeat(50_000);
    let config_map = |number: u32| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large-{number}, namespace: shop}}\n\
             data: {{key: {data}}}\n"
        )
    };
    (0..8).map(config_map).collect()
}

async fn kubelets_and_api_server_are_killed(site: &mut Installation) -> Result<()> {
    let cluster = &site.terminal.cluster;
    for node in cluster.nodes() {
        node.kubelet().kill9();
        node.kubelet().start_again()?;
    }
    cluster.kill_api_server()?;
    cluster.start_api_server().await?;
    site.forward_again().await?;
    site.delivers(5).await
}

async fn broker_is_upgraded_and_uninstalled(site: &mut Installation) -> Result<()> {
    let upgrade = site.install.replace("helm install", "helm upgrade") + " --set config.log=debug";
    site.types(&upgrade).await?;
    site.forward_again().await?;
    site.delivers(6).await?;
    // Uninstalled, it leaves the delivered Pods alone.
    site.types("helm uninstall brokkr -n brokkr --wait").await?;
    let pods = site.types("kubectl -n shop get pods --field-selector=status.phase=Running -o name").await?;
    assert_eq!(pods.stdout.lines().count(), 2, "{pods:?}");
    Ok(())
}

/// The shortest validity that Kubernetes allows for the token of a ServiceAccount.
const TOKEN_SECONDS: u64 = 600;

/// The kubelet replaces the token in the file, and the agent reads it again without a restart.
#[tokio::test]
#[ignore = "waits for the expiry of a token, eleven minutes; .ci/nightly runs it"]
async fn the_agent_uses_a_rotated_token() -> Result<()> {
    if skipped()? {
        return Ok(());
    }
    let site = Installation::start().await?;
    let token = serde_json::json!([
        {"op": "add", "path": "/spec/template/spec/automountServiceAccountToken", "value": false},
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "token", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}}},
        {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value":
            {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}},
    ]);
    site.types(&format!("kubectl -n brokkr-system patch deployment brokkr-agent --type=json -p '{token}'"))
        .await?;
    site.types("kubectl -n brokkr-system rollout status deployment brokkr-agent --timeout=90s").await?;
    eventually(DEADLINE, "the former Pod to be gone", async || {
        let pods = site.types("kubectl -n brokkr-system get pods -o name").await?.stdout;
        anyhow::ensure!(pods.lines().count() == 1, "{pods}");
        anyhow::Ok(())
    })
    .await?;
    let pod = "kubectl -n brokkr-system get pods --field-selector=status.phase=Running -o \
               jsonpath='{.items[0].metadata.name} {.items[0].status.containerStatuses[0].restartCount}'";
    let first = site.types(pod).await?.stdout;
    site.delivers(2).await?;
    // A token of the same age as the agent's first one is refused in the end, or this proves nothing.
    let token = format!("kubectl -n brokkr-system create token brokkr-agent --duration={TOKEN_SECONDS}s");
    let token = site.types(&token).await?.stdout;
    let review = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.trim()},
    });
    site.terminal.scratch.write("review.json", review.to_string())?;
    let review = "kubectl create -f review.json -o jsonpath='{.status.authenticated}'";
    assert_eq!(site.types(review).await?.stdout, "true");
    let started = Instant::now();
    // The API server accepts a token for another minute, because clocks differ, and caches its answer for ten seconds.
    let expired = Duration::from_secs(TOKEN_SECONDS + 90);
    eventually(expired + DEADLINE, "the first token to expire", async || started.elapsed() > expired).await?;
    assert_ne!(site.types(review).await?.stdout, "true");
    site.delivers(3).await?;
    let last = site.types(pod).await?.stdout;
    assert!(first.ends_with(" 0"), "{first}");
    assert_eq!(first, last, "the agent was not restarted");
    Ok(())
}

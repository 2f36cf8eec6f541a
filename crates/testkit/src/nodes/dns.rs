//! Cluster DNS: CoreDNS as a Pod, at the address that the kubelets write into every Pod.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use super::images::DNS;
use super::network::Network;
use crate::cluster::Cluster;
use crate::eventually::{Attempt, eventually};

const DEADLINE: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
/// Above 1023, because the image's user is not root.
const PORT: u16 = 5353;

/// Starts cluster DNS and waits until it answers.
pub(crate) async fn start(cluster: &Cluster, network: &Network) -> Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects(network)});
    cluster.apply(&objects.to_string()).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin().await?, NAMESPACE);
    eventually(DEADLINE, "cluster DNS to be available", async || match deployments.get(NAME).await {
        Ok(deployment) if available(&deployment) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}

fn available(deployment: &Deployment) -> bool {
    deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default() > 0
}

fn objects(network: &Network) -> [Value; 6] {
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let labels = json!({"k8s-app": NAME});
    let configuration = format!(".:{PORT} {{\n  errors\n  ready\n  kubernetes cluster.local\n}}\n");
    let container = json!({
        "name": "coredns",
        "image": DNS,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": PORT, "protocol": "UDP"}, {"containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
    });
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "port": 53, "targetPort": PORT, "protocol": protocol});
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"Corefile": configuration},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": labels,
                "clusterIP": network.dns().to_string(),
                "ports": [port("UDP"), port("TCP")],
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": NAME,
                        "containers": [container],
                        "volumes": [{"name": "configuration", "configMap": {"name": NAME}}],
                    },
                },
            },
        }),
    ]
}

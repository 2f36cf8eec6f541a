//! Row 40: an admission webhook that does not respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use brokkr_testkit::eventually;
use brokkr_testkit::proxy::Exchange;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::world::{FaultWorld, WAIT_TIMEOUT, config_map_yaml, summary};

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// A server that accepts connections and never answers.
struct SilentServer {
    port: u16,
    accepted: Arc<AtomicUsize>,
    listening: JoinHandle<()>,
}

impl SilentServer {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (port, accepted) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        let listening = tokio::spawn(async move {
            // Kept open: a closed connection would be an error at once, and no timeout.
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.push(stream);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { port, accepted, listening })
    }
}

impl Drop for SilentServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// The webhook is called for one object of one stack.
#[tokio::test]
async fn row_40_a_webhook_that_times_out_fails_its_object_and_no_other() -> Result<()> {
    let world = FaultWorld::start().await?;
    let silent = SilentServer::start().await?;
    let name = format!("silent-{}", world.tag);
    // Dry runs pass, so that the failure comes after validation.
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "silent.example.com", "timeoutSeconds": 1,
            "clientConfig": {"url": format!("https://127.0.0.1:{}/", silent.port)},
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"], "scope": "Namespaced"}],
            "matchConditions": [{"name": "one", "expression": "request.name == 'b' && !(has(request.dryRun) && request.dryRun)"}],
        }],
    });
    world.cluster.apply(&webhook.to_string()).await?;
    let mark = world.api_proxy.mark();
    world.submit(&MAPS).await?;
    world.fleet.submit("other", "env=prod", &config_map_yaml(&world.namespace, "other", "1")).await?;
    world.wait_until_reported_healthy("other").await?;
    world.wait_for_value("a", "1").await?;
    world.wait_for_value("c", "1").await?;
    // Repeated, because a timeout is a transient error.
    eventually(WAIT_TIMEOUT, "two applies to time out", async || refused(&world, mark).len() >= 2).await?;
    let refused = refused(&world, mark);
    let others = refused.iter().find(|write| !write.request.is_named("b"));
    assert!(others.is_none(), "only b is refused: {:?}", others.map(summary));
    assert!(silent.accepted.load(Ordering::SeqCst) >= 1, "the webhook was called");
    assert_eq!(world.config_map("b").await?, None, "refused as long as the webhook is silent");
    assert_eq!(world.count_reported("web", "healthy").await?, 0, "F6: not healthy without b");

    world.cluster.kubectl(["delete", "validatingwebhookconfiguration", &name]).await?.ok()?;
    world.wait_for_value("b", "1").await?;
    world.wait_until_reported_healthy("web").await?;
    world.wait_until_idle().await?;
    world.assert_invariants().await
}

/// Returns the applies that the API server refused since the mark because of a failed webhook.
fn refused(world: &FaultWorld, mark: usize) -> Vec<Exchange> {
    let writes = world.writes_since(mark).into_iter();
    writes.filter(|write| write.request.is_apply() && write.server_status >= Some(500)).collect()
}

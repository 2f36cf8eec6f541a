//! Row 40: webhooks of the API server that do not respond, ask for minutes, change objects, or convert them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use brokkr_testkit::eventually;
use brokkr_testkit::proxy::Exchange;
use brokkr_testkit::webhook::{Webhook, convert, mutate, try_later};
use brokkr_testkit::world::{counter_definition, deployment_yaml};
use serde_json::{Value, json};

use crate::world::{FaultWorld, WAIT_TIMEOUT, config_map_yaml, summary};

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// Registers a webhook for the ConfigMap of this name in the namespace of the row. It is not called for dry runs, so that it
/// acts after validation. Returns the resource to delete.
async fn register(world: &FaultWorld, kind: &str, webhook: &Webhook, map: &str) -> Result<[String; 2]> {
    let name = format!("row-40-{}", world.tag);
    let expression = format!("request.name == '{map}' && !(has(request.dryRun) && request.dryRun)");
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name},
        "webhooks": [{
            "name": "row40.example.com", "timeoutSeconds": 1, "clientConfig": webhook.client_config(),
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"], "scope": "Namespaced"}],
            "matchConditions": [{"name": "one", "expression": expression}],
        }],
    });
    world.cluster.apply(&configuration.to_string()).await?;
    Ok([kind.to_lowercase(), name])
}

async fn unregister(world: &FaultWorld, [kind, name]: &[String; 2]) -> Result<()> {
    world.cluster.kubectl(["delete", kind, name]).await?.ok()?;
    Ok(())
}

/// D5: another stack is delivered and repaired while a webhook troubles `web`.
async fn check_other_stack(world: &FaultWorld) -> Result<()> {
    world.fleet.submit("other", "env=prod", &config_map_yaml(&world.namespace, "other", "1")).await?;
    world.wait_until_reported_healthy("other").await?;
    world.edit("other", "2").await?;
    world.wait_for_value("other", "1").await
}

/// Returns the applies that the API server refused since the mark with at least this status.
fn refused(world: &FaultWorld, mark: usize, status: u16) -> Vec<Exchange> {
    let writes = world.writes_since(mark).into_iter();
    writes.filter(|write| write.request.is_apply() && write.server_status >= Some(status)).collect()
}

/// The webhook is called for one object of one stack.
#[tokio::test]
async fn row_40_a_webhook_that_times_out_fails_its_object_and_no_other() -> Result<()> {
    let world = FaultWorld::start().await?;
    let silent = Webhook::start(|_| None).await?;
    let registered = register(&world, "ValidatingWebhookConfiguration", &silent, "b").await?;
    let mark = world.api_proxy.mark();
    world.submit(&MAPS).await?;
    check_other_stack(&world).await?;
    world.wait_for_value("a", "1").await?;
    world.wait_for_value("c", "1").await?;
    // Repeated, because a timeout is a transient error.
    let all_refused = || refused(&world, mark, 500);
    eventually(WAIT_TIMEOUT, "two applies to time out", async || all_refused().len() >= 2).await?;
    let refused = all_refused();
    let others = refused.iter().find(|write| !write.request.is_named("b"));
    assert!(others.is_none(), "only b is refused: {:?}", others.map(summary));
    assert!(silent.calls() >= 1, "the webhook was called");
    assert_eq!(world.config_map("b").await?, None, "refused as long as the webhook is silent");
    assert_eq!(world.count_reported("web", "healthy").await?, 0, "F6: not healthy without b");

    unregister(&world, &registered).await?;
    world.wait_for_value("b", "1").await?;
    world.wait_until_reported_healthy("web").await?;
    world.wait_until_idle().await?;
    world.assert_invariants().await
}

/// K12: the Retry-After of a webhook is about one object. J5: what comes later in the same stack waits for it.
#[tokio::test]
async fn row_40_d5_j5_a_webhook_that_asks_for_minutes_delays_its_stack_and_inverts_nothing() -> Result<()> {
    let world = FaultWorld::start().await?;
    let busy = Webhook::start(|_| Some(try_later(300))).await?;
    let registered = register(&world, "ValidatingWebhookConfiguration", &busy, "settings").await?;
    let stack = |value: &str| {
        config_map_yaml(&world.namespace, "settings", value) + &deployment_yaml(&world.namespace, "front", 1)
    };
    let mark = world.api_proxy.mark();
    world.fleet.submit("web", "env=prod", &stack("1")).await?;
    eventually(WAIT_TIMEOUT, "an apply to be refused", async || !refused(&world, mark, 429).is_empty())
        .await?;
    check_other_stack(&world).await?;
    let writes = world.writes_since(mark);
    let front = writes.iter().find(|write| write.request.is_apply() && write.request.is_named("front"));
    assert!(front.is_none(), "J5: {:?} although its settings are not written", front.map(summary));
    assert_eq!(refused(&world, mark, 429).len(), 1, "D2: its Retry-After is obeyed");

    unregister(&world, &registered).await?;
    // A new version does not wait for the failures of the last one.
    world.fleet.submit("web", "env=prod", &stack("2")).await?;
    world.wait_for_value("settings", "2").await?;
    let applied = || -> Vec<&str> {
        let writes = world
            .writes_since(mark)
            .into_iter()
            .filter(|write| write.succeeded() && write.request.is_apply());
        let name =
            |write: Exchange| ["settings", "front"].into_iter().find(|name| write.request.is_named(name));
        writes.filter_map(name).collect()
    };
    eventually(WAIT_TIMEOUT, "the Deployment to be applied", async || applied().contains(&"front")).await?;
    assert_eq!(applied()[0], "settings", "J5");
    world.assert_invariants().await
}

/// A webhook that changes what we apply is not drift, and not fought.
#[tokio::test]
async fn row_40_a_webhook_that_changes_what_we_apply_is_not_fought() -> Result<()> {
    let world = FaultWorld::start().await?;
    let patch = json!([
        {"op": "replace", "path": "/data/value", "value": "changed"},
        {"op": "add", "path": "/data/added", "value": "theirs"},
    ]);
    let changes = Webhook::start(move |_| Some(mutate(&patch))).await?;
    let registered = register(&world, "MutatingWebhookConfiguration", &changes, "b").await?;
    world.submit(&MAPS).await?;
    world.wait_until_reported_healthy("web").await?;
    world.wait_until_idle().await?;
    assert_eq!(world.value("b").await?.as_deref(), Some("changed"));
    let mark = world.api_proxy.mark();
    world.edit("a", "9").await?;
    world.wait_for_value("a", "1").await?;
    world.edit("b", "9").await?;
    world.wait_until_idle().await?;
    let written = world.writes_since(mark);
    let repairs = written.iter().filter(|write| write.request.is_apply() && write.request.is_named("b"));
    assert!(
        repairs.count() <= 2,
        "repaired, not fought: {:?}",
        written.iter().map(summary).collect::<Vec<_>>()
    );
    check_other_stack(&world).await?;

    unregister(&world, &registered).await?;
    world.submit(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;
    world.wait_for_value("b", "2").await?;
    world.wait_until_reported_healthy("web").await?;
    world.delete_stack().await?;
    world.wait_until_gone("b").await?;
    world.assert_invariants().await
}

/// A definition with two versions and the webhook that converts between them: `spec.size` was renamed to `spec.count`.
fn definition(group: &str, webhook: &Webhook) -> String {
    let mut definition = counter_definition(group, true);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": webhook.client_config(), "conversionReviewVersions": ["v1"],
    }});
    definition.to_string()
}

fn renamed(object: &Value, version: &str) -> Value {
    let (from, to) = if version.ends_with("/v1") { ("size", "count") } else { ("count", "size") };
    let mut object = object.clone();
    object["apiVersion"] = version.into();
    if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
        object["spec"][to] = value;
    }
    object
}

/// The stack uses a version that is not the stored one, so every read and event of its kind is converted.
#[tokio::test]
async fn row_40_d5_a_webhook_that_converts_may_hang_without_delaying_other_stacks() -> Result<()> {
    let world = FaultWorld::start().await?;
    let hangs = Arc::new(AtomicBool::new(false));
    let converts = {
        let hangs = hangs.clone();
        Webhook::start(move |request| (!hangs.load(Ordering::SeqCst)).then(|| convert(request, renamed)))
            .await?
    };
    let group = format!("{}.faults.example", world.tag);
    world.cluster.apply(&definition(&group, &converts)).await?;
    let (crd, space) = (format!("crd/counters.{group}"), &world.namespace);
    world.cluster.kubectl(["wait", "--for=condition=Established", &crd, "--timeout=60s"]).await?.ok()?;
    let counter = |size: u32| {
        format!(
            "---\napiVersion: {group}/v1beta1\nkind: Counter\nmetadata: {{name: front, namespace: {space}}}\nspec: {{size: {size}}}\n"
        )
    };
    world.fleet.apply("web", "env=prod", &counter(1)).await?;
    let resource = format!("counters.v1.{group}");
    let wait_for_count = async |expected: &str| {
        eventually(WAIT_TIMEOUT, &format!("the count to be {expected}"), async || {
            let query = ["get", &resource, "front", "-n", space, "-o", "jsonpath={.spec.count}"];
            let count = world.cluster.kubectl(query).await?.ok()?.stdout;
            ensure!(count == expected, "{count}");
            Ok(())
        })
        .await
    };
    wait_for_count("1").await?;
    assert!(converts.calls() > 0, "the webhook was called");
    let drift = ["patch", &resource, "front", "-n", space, "--type=merge", "-p", r#"{"spec":{"count":5}}"#];
    world.cluster.kubectl(drift).await?.ok()?;
    wait_for_count("1").await?;

    hangs.store(true, Ordering::SeqCst);
    world.fleet.submit("web", "env=prod", &counter(2)).await?;
    check_other_stack(&world).await?;
    hangs.store(false, Ordering::SeqCst);
    wait_for_count("2").await?;
    world.wait_until_reported_healthy("web").await?;
    world.fleet.brokkr(["stack", "delete", "web", "--yes", "--wait"]).await?.ok()?;
    let left = world.cluster.kubectl(["get", &resource, "-n", space, "-o", "name"]).await?.ok()?;
    ensure!(left.stdout.trim().is_empty(), "{}", left.stdout);
    world.assert_invariants().await
}

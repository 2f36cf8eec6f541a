//! Rows 37 to 42: an API server that dies, refuses, or waits for somebody who does not come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Canned, Exchange, Matcher};
use brokkr_testkit::{Cluster, Look, eventually};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use brokkr_e2e::runs_in_full;
use crate::world::{PATIENCE, World, brief, configmap};

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

fn deletes(world: &World, mark: usize) -> Vec<Exchange> {
    world.writes(mark).into_iter().filter(|write| write.asked.method == http::Method::DELETE).collect()
}

/// Both engines in turn, each in the middle of an apply. What etcd has acknowledged it still has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_37_the_api_server_and_etcd_killed_in_the_middle_of_an_apply() -> Result<()> {
    let world = World::start_in(Arc::new(Cluster::durable().await?)).await?;
    world.deliver(&MAPS).await?;
    let rule = world.api.when(Matcher::applies().about("configmaps").nth(2), Action::HaltAfter);
    world.submit(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.cluster.kill_api_server()?;
    rule.release();
    world.cluster.start_api_server().await?;
    world.converged(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;

    let rule = world.api.when(Matcher::applies().about("configmaps").nth(2), Action::HaltAfter);
    world.submit(&[("a", "3"), ("b", "3"), ("d", "3")]).await?;
    rule.reached(1, PATIENCE).await?;
    world.cluster.restart_etcd().await?;
    rule.release();
    world.converged(&[("a", "3"), ("b", "3"), ("d", "3")]).await?;
    world.invariants().await
}

#[tokio::test]
async fn row_38_a_busy_api_server_is_asked_again_when_it_said_and_not_before() -> Result<()> {
    const ASKED: u64 = 4;
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    let busy = Matcher::applies().named("a").first(2);
    let rule = world.api.when(busy, Action::Answer(Canned::too_many(ASKED)));
    let mark = world.api.mark();
    world.submit(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    rule.reached(2, PATIENCE).await?;
    world.sees_value("b", "2").await?;
    world.converged(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    let asked: Vec<_> = world
        .api
        .since(mark)
        .into_iter()
        .filter(|exchange| exchange.asked.is_apply() && exchange.asked.is_named("a"))
        .map(|exchange| exchange.at)
        .collect();
    assert_eq!(asked.len(), 3, "refused twice, and then it was let in: no hot loop");
    for pair in asked.windows(2) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= ASKED as f64 * 0.95, "D2: asked again after {pause} s");
    }
    world.invariants().await
}

/// D2: 1 s first, then twice as long each time.
#[tokio::test]
async fn d2_row_38_a_server_that_fails_is_asked_again_after_one_second_and_then_twice_as_long() -> Result<()>
{
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    world.api.when(Matcher::applies().named("a").first(3), Action::Answer(Canned::unavailable()));
    let mark = world.api.mark();
    world.submit(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    world.converged(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    let applies = world
        .api
        .since(mark)
        .into_iter()
        .filter(|exchange| exchange.asked.is_apply() && exchange.asked.is_named("a"));
    let asked: Vec<_> = applies.map(|exchange| exchange.at).collect();
    assert_eq!(asked.len(), 4, "three times in vain, and then it was let in");
    for (pair, wanted) in asked.windows(2).zip([1.0, 2.0, 4.0]) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= wanted * 0.95, "asked again after {pause} s instead of {wanted} s");
    }
    world.invariants().await
}

/// The agent's rights are narrowed between two deployment objects, so that one object of the new one is refused.
#[tokio::test]
async fn row_39_rights_that_end_stop_the_stack_before_it_prunes() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    // The role is shared by all agents of the cluster: this one is bound to a narrower one instead.
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let binding = format!("brokkr-agent-cluster.{}", world.shop.namespace());
    let mut whole = bindings.get(&binding).await?;
    let narrow = format!("narrow-{}", world.tag);
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": narrow},
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "delete"]},
        ],
    }))?;
    Api::<ClusterRole>::all(world.client.clone()).create(&PostParams::default(), &role).await?;
    let mut narrowed = whole.clone();
    narrowed.metadata = ObjectMeta { name: Some(narrow.clone()), ..ObjectMeta::default() };
    narrowed.role_ref.name.clone_from(&narrow);
    bindings.create(&PostParams::default(), &narrowed).await?;
    bindings.delete(&binding, &DeleteParams::default()).await?;

    let mark = world.api.mark();
    let secret = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: {}\nstringData:\n  k: v\n",
        world.space
    );
    let yaml = world.yaml(&[("a", "2"), ("b", "2")]) + &secret;
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let told = world.status("web", "the refusal to be told", |status| status["state"] == "failed").await?;
    assert!(told.to_string().contains("orbidden"), "D3: with its message: {told}");
    assert!(deletes(&world, mark).is_empty(), "no prune after an apply that was not complete");
    assert!(world.map("c").await?.is_some());

    whole.metadata.resource_version = None;
    bindings.create(&PostParams::default(), &whole).await?;
    bindings.delete(&narrow, &DeleteParams::default()).await?;
    if runs_in_full() {
        let deadline = Duration::from_secs(340);
        eventually(deadline, "the next cycle to start over", async || {
            world.value("a").await.is_ok_and(|value| value.as_deref() == Some("2"))
        })
        .await?;
    } else {
        // A8: the same again is a full reconciliation, now.
        world.fleet.submit("web", "env=prod", &yaml).await?;
    }
    world.converged(&[("a", "2"), ("b", "2")]).await?;
    world.invariants().await
}

/// An admission webhook that does not answer, for one object of one stack.
#[tokio::test]
async fn row_40_a_webhook_that_times_out_fails_its_object_and_no_other() -> Result<()> {
    let world = World::start().await?;
    let name = format!("silent-{}", world.tag);
    // Nobody listens on the discard port. Dry runs pass, so that the failure comes after validation.
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "silent.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"}, "timeoutSeconds": 1,
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.space}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"], "scope": "Namespaced"}],
            "matchConditions": [{"name": "one", "expression": "request.name == 'b' && !(has(request.dryRun) && request.dryRun)"}],
        }],
    });
    world.cluster.apply(&webhook.to_string()).await?;
    world.submit(&MAPS).await?;
    world.fleet.submit("other", "env=prod", &configmap(&world.space, "other", "1")).await?;
    world.told_healthy("other").await?;
    world.sees_value("a", "1").await?;
    world.sees_value("c", "1").await?;
    assert_eq!(world.map("b").await?, None, "refused as long as the webhook is silent");

    world.cluster.kubectl(["delete", "validatingwebhookconfiguration", &name]).await?.ok()?;
    world.sees_value("b", "1").await?;
    world.told_healthy("web").await?;
    world.at_rest().await?;
    world.invariants().await
}

/// A definition and its resource come together, into a namespace that somebody has just deleted.
#[tokio::test]
async fn row_41_definition_resource_and_a_terminating_namespace_come_in_order() -> Result<()> {
    let world = World::start().await?;
    let inner = format!("{}-inner", world.space);
    let group = format!("{}.faults.example", world.tag);
    let yaml = format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n\
         ---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: gears.{group}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: gears, singular: gear, kind: Gear}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        x-kubernetes-preserve-unknown-fields: true\n\
         ---\napiVersion: {group}/v1\nkind: Gear\nmetadata:\n  name: first\n  namespace: {inner}\nspec:\n  teeth: 12\n{}",
        configmap(&inner, "a", "1"),
    );
    // Held open by a finalizer: the namespace is on its way out for as long as the test wants.
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": inner}}))?;
    namespaces.create(&Default::default(), &namespace).await?;
    let holding = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
        {"name": "holding", "namespace": inner, "finalizers": ["faults.example/hold"]}});
    world.cluster.apply(&holding.to_string()).await?;
    namespaces.delete(&inner, &DeleteParams::default()).await?;

    world.fleet.submit("web", "env=prod", &yaml).await?;
    world.status("web", "that the namespace is waited for", |status| status["state"] == "blocked").await?;
    world
        .cluster
        .kubectl([
            "patch",
            "configmap",
            "holding",
            "-n",
            &inner,
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ])
        .await?
        .ok()?;
    world.told_healthy("web").await?;
    let gear =
        world.cluster.kubectl(["get", &format!("gears.{group}"), "-n", &inner, "-o", "name"]).await?.ok()?;
    assert!(gear.stdout.contains("first"));
    let applied: Vec<Exchange> =
        world.writes(0).into_iter().filter(|write| write.asked.is_apply() && write.succeeded()).collect();
    let at = |resource: &str| {
        applied.iter().find(|write| write.asked.is_about(resource)).and_then(|write| write.order)
    };
    assert!(at("namespaces") < at("gears") && at("customresourcedefinitions") < at("gears"), "B1");

    world.delete_stack().await?;
    eventually(PATIENCE, "namespace, definition and record to be gone", async || {
        let left = world.cluster.kubectl(["get", "crd", &format!("gears.{group}")]).await?;
        let records = world.records().await?;
        anyhow::ensure!(
            namespaces.get_opt(&inner).await?.is_none() && !left.success() && records.is_empty(),
            "{} {records:?}",
            left.stdout
        );
        Ok(())
    })
    .await?;
    world.invariants().await
}

#[tokio::test]
async fn row_42_an_object_that_waits_for_a_finalizer_is_named_with_it() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    let hold = json!({"metadata": {"finalizers": ["faults.example/hold"]}});
    world.maps().patch("b", &PatchParams::default(), &Patch::Merge(hold)).await?;
    world.delete_stack().await?;
    let stack = eventually(PATIENCE, "what blocks to be told", async || {
        let events = world.fleet.get("/api/v1/events?limit=500").await?;
        let blocked = events["items"].as_array().into_iter().flatten().find(|event| {
            event["transition"] == "blocked" && event.to_string().contains("faults.example/hold")
        });
        let blocked = blocked.ok_or_else(|| anyhow::anyhow!("{events}"))?;
        anyhow::Ok(blocked.clone())
    })
    .await?;
    assert!(stack.to_string().contains("ConfigMap"), "which one: {stack}");
    assert!(!world.records().await?.is_empty(), "E2: not gone, so not done");

    let started = Instant::now();
    let free = json!({"metadata": {"finalizers": null}});
    world.maps().patch("b", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.gone().await?;
    println!("gone {:?} after the finalizer went", started.elapsed());
    eventually(PATIENCE, "the removal to be told", async || {
        let events = world.fleet.get("/api/v1/events?limit=500").await;
        let told = events.is_ok_and(|events| {
            events["items"].as_array().into_iter().flatten().any(|event| event["transition"] == "removed")
        });
        if told { Look::Yes(()) } else { Look::NotYet("not yet".into()) }
    })
    .await?;
    let again: Vec<_> = deletes(&world, 0).into_iter().filter(|delete| delete.asked.is_named("b")).collect();
    assert!(again.len() <= 2, "no hot loop: {:?}", again.iter().map(brief).collect::<Vec<_>>());
    world.invariants().await
}

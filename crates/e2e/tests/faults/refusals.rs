//! Rows 37 to 42, except 40: an API server that crashes, refuses, or waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use brokkr_testkit::proxy::{Action, CannedResponse, Exchange, Matcher};
use brokkr_testkit::{Attempt, Cluster, eventually};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{AGENT, FaultWorld, WAIT_TIMEOUT, config_map_yaml, summary};
use brokkr_e2e::runs_in_full;

const MAPS: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

fn deletes(world: &FaultWorld, mark: usize) -> Vec<Exchange> {
    world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.request.method == http::Method::DELETE)
        .collect()
}

/// The API server and etcd are killed in turn, each in the middle of an apply. etcd keeps everything that it
/// has acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_37_the_api_server_and_etcd_killed_in_the_middle_of_an_apply() -> Result<()> {
    let world = FaultWorld::start_in(Arc::new(Cluster::durable().await?)).await?;
    world.deliver(&MAPS).await?;
    let rule = world.api_proxy.when(Matcher::applies().about("configmaps").nth(2), Action::HaltAfter);
    world.submit(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.cluster.kill_api_server()?;
    rule.release();
    world.cluster.start_api_server().await?;
    world.wait_until_converged(&[("a", "2"), ("b", "2"), ("c", "2")]).await?;

    let rule = world.api_proxy.when(Matcher::applies().about("configmaps").nth(2), Action::HaltAfter);
    world.submit(&[("a", "3"), ("b", "3"), ("d", "3")]).await?;
    rule.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.cluster.restart_etcd().await?;
    rule.release();
    world.wait_until_converged(&[("a", "3"), ("b", "3"), ("d", "3")]).await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_38_requests_to_a_busy_api_server_are_retried_after_retry_after() -> Result<()> {
    const RETRY_AFTER: u64 = 4;
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    let busy = Matcher::applies().named("a").first(2);
    let rule = world.api_proxy.when(busy, Action::Respond(CannedResponse::too_many(RETRY_AFTER)));
    let mark = world.api_proxy.mark();
    world.submit(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    rule.wait_for_hits(2, WAIT_TIMEOUT).await?;
    world.wait_for_value("b", "2").await?;
    world.wait_until_converged(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    let attempts: Vec<_> = world
        .api_proxy
        .since(mark)
        .into_iter()
        .filter(|exchange| exchange.request.is_apply() && exchange.request.is_named("a"))
        .map(|exchange| exchange.at)
        .collect();
    assert_eq!(attempts.len(), 3, "refused twice, then accepted: no hot loop");
    for pair in attempts.windows(2) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= RETRY_AFTER as f64 * 0.95, "D2: retried after {pause} s");
    }
    world.assert_invariants().await
}

/// D2: 1 s first, then twice as long each time.
#[tokio::test]
async fn d2_row_38_requests_to_a_failing_server_are_retried_after_one_second_and_then_twice_as_long()
-> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    world
        .api_proxy
        .when(Matcher::applies().named("a").first(3), Action::Respond(CannedResponse::unavailable()));
    let mark = world.api_proxy.mark();
    world.submit(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    world.wait_until_converged(&[("a", "2"), ("b", "2"), ("c", "1")]).await?;
    let applies = world
        .api_proxy
        .since(mark)
        .into_iter()
        .filter(|exchange| exchange.request.is_apply() && exchange.request.is_named("a"));
    let attempts: Vec<_> = applies.map(|exchange| exchange.at).collect();
    assert_eq!(attempts.len(), 4, "refused three times, then accepted");
    for (pair, wanted) in attempts.windows(2).zip([1.0, 2.0, 4.0]) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= wanted * 0.95, "retried after {pause} s instead of {wanted} s");
    }
    world.assert_invariants().await
}

/// The agent loses permissions between two deployment objects, so that a resource of the second is refused.
#[tokio::test]
async fn row_39_withdrawn_permissions_stop_the_stack_before_it_prunes() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    // All agents of the cluster share the role, so this agent is bound to a narrower role instead.
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let binding = format!("brokkr-agent-apps.{}", world.agent.namespace());
    let mut original = bindings.get(&binding).await?;
    let narrow = format!("narrow-{}", world.tag);
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": narrow},
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "delete"]},
        ],
    }))?;
    Api::<ClusterRole>::all(world.client.clone()).create(&PostParams::default(), &role).await?;
    let mut narrowed = original.clone();
    narrowed.metadata = ObjectMeta { name: Some(narrow.clone()), ..ObjectMeta::default() };
    narrowed.role_ref.name.clone_from(&narrow);
    bindings.create(&PostParams::default(), &narrowed).await?;
    bindings.delete(&binding, &DeleteParams::default()).await?;

    let mark = world.api_proxy.mark();
    let secret = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: {}\nstringData:\n  k: v\n",
        world.namespace
    );
    let yaml = world.config_maps_yaml(&[("a", "2"), ("b", "2")]) + &secret;
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let reported = world
        .wait_for_status("web", AGENT, "the refusal to be reported", |status| status["state"] == "failed")
        .await?;
    assert!(reported.to_string().contains("orbidden"), "D3: with its message: {reported}");
    // Dry runs are refused, unless the review of the agent's rights was faster and nothing is sent at all.
    let changes =
        world.api_proxy.since(mark).into_iter().filter(|one| one.request.method != http::Method::GET);
    let forbidden: Vec<Exchange> = changes.filter(|one| one.server_status == Some(403)).collect();
    let about_others = forbidden.iter().find(|one| !one.request.is_about("secrets"));
    assert!(about_others.is_none(), "only the Secret is refused: {:?}", about_others.map(summary));
    assert!(forbidden.len() <= 2, "D3: refused and not hammered: {}", forbidden.len());
    assert!(deletes(&world, mark).is_empty(), "no prune after an incomplete apply");
    assert_eq!(
        world.managed_config_maps().await?,
        MAPS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        "B2: an error of the validation stops the stack before its first write"
    );
    world.wait_for_polls(3).await?;
    assert!(deletes(&world, mark).is_empty(), "nor later");

    original.metadata.resource_version = None;
    bindings.create(&PostParams::default(), &original).await?;
    bindings.delete(&narrow, &DeleteParams::default()).await?;
    if runs_in_full() {
        let deadline = Duration::from_secs(340);
        eventually(deadline, "the next cycle to retry", async || {
            world.value("a").await.is_ok_and(|value| value.as_deref() == Some("2"))
        })
        .await?;
    } else {
        // A8: submitting the same again is a full reconciliation.
        world.fleet.submit("web", "env=prod", &yaml).await?;
    }
    world.wait_until_converged(&[("a", "2"), ("b", "2")]).await?;
    world.assert_invariants().await
}

/// A definition and its resource are delivered together, into a namespace that is being deleted.
#[tokio::test]
async fn row_41_definition_resource_and_a_terminating_namespace_come_in_order() -> Result<()> {
    let world = FaultWorld::start().await?;
    let inner = format!("{}-inner", world.namespace);
    let group = format!("{}.faults.example", world.tag);
    let yaml = format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n\
         ---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: gears.{group}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: gears, singular: gear, kind: Gear}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        x-kubernetes-preserve-unknown-fields: true\n\
         ---\napiVersion: {group}/v1\nkind: Gear\nmetadata:\n  name: first\n  namespace: {inner}\nspec:\n  teeth: 12\n{}",
        config_map_yaml(&inner, "a", "1"),
    );
    // A finalizer keeps the namespace terminating for as long as the test wants.
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": inner}}))?;
    namespaces.create(&Default::default(), &namespace).await?;
    let holding = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
        {"name": "holding", "namespace": inner, "finalizers": ["faults.example/hold"]}});
    world.cluster.apply(&holding.to_string()).await?;
    namespaces.delete(&inner, &DeleteParams::default()).await?;

    world.fleet.submit("web", "env=prod", &yaml).await?;
    world
        .wait_for_status("web", AGENT, "waiting for the namespace", |status| status["state"] == "blocked")
        .await?;
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
    world.wait_until_reported_healthy("web").await?;
    let gear =
        world.cluster.kubectl(["get", &format!("gears.{group}"), "-n", &inner, "-o", "name"]).await?.ok()?;
    assert!(gear.stdout.contains("first"));
    let applied: Vec<Exchange> = world
        .writes_since(0)
        .into_iter()
        .filter(|write| write.request.is_apply() && write.succeeded())
        .collect();
    let at = |resource: &str| {
        applied.iter().find(|write| write.request.is_about(resource)).and_then(|write| write.order)
    };
    assert!(at("namespaces") < at("gears") && at("customresourcedefinitions") < at("gears"), "B1");

    world.delete_stack().await?;
    eventually(WAIT_TIMEOUT, "namespace, definition and record to be gone", async || {
        let left = world.cluster.kubectl(["get", "crd", &format!("gears.{group}")]).await?;
        let records = world.record_names().await?;
        anyhow::ensure!(
            namespaces.get_opt(&inner).await?.is_none() && !left.success() && records.is_empty(),
            "{} {records:?}",
            left.stdout
        );
        Ok(())
    })
    .await?;
    world.assert_invariants().await
}

#[tokio::test]
async fn row_42_an_object_that_waits_for_a_finalizer_is_named_with_it() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    let hold = json!({"metadata": {"finalizers": ["faults.example/hold"]}});
    world.config_maps().patch("b", &PatchParams::default(), &Patch::Merge(hold)).await?;
    world.delete_stack().await?;
    let stack = eventually(WAIT_TIMEOUT, "the blocking finalizer to be reported", async || {
        let events = world.fleet.get("/api/v1/events?limit=500").await?;
        let blocked = events["items"].as_array().into_iter().flatten().find(|event| {
            event["transition"] == "blocked" && event.to_string().contains("faults.example/hold")
        });
        let blocked = blocked.ok_or_else(|| anyhow::anyhow!("{events}"))?;
        anyhow::Ok(blocked.clone())
    })
    .await?;
    assert!(stack.to_string().contains("ConfigMap"), "which one: {stack}");
    assert!(!world.record_names().await?.is_empty(), "E2: the record stays until everything is gone");

    let started = Instant::now();
    let free = json!({"metadata": {"finalizers": null}});
    world.config_maps().patch("b", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.wait_until_deleted().await?;
    println!("gone {:?} after the finalizer was removed", started.elapsed());
    eventually(WAIT_TIMEOUT, "the removal to be reported", async || {
        let events = world.fleet.get("/api/v1/events?limit=500").await;
        let reported = events.is_ok_and(|events| {
            events["items"].as_array().into_iter().flatten().any(|event| event["transition"] == "removed")
        });
        if reported { Attempt::Done(()) } else { Attempt::NotYet("not yet".into()) }
    })
    .await?;
    let again: Vec<_> =
        deletes(&world, 0).into_iter().filter(|delete| delete.request.is_named("b")).collect();
    assert!(again.len() <= 2, "no hot loop: {:?}", again.iter().map(summary).collect::<Vec<_>>());
    world.assert_invariants().await
}

//! Situations 6 to 11, and 20: the manifest or one of its objects is refused.

use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::Json;
use axum::routing::post;
use brokkr_testkit::scripted::listener;
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{AgentOptions, Cluster, Scratch, eventually, unique};
use http::Method;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::asking::{explained, follow, row, types_with, well};
use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml};

/// The running version is not affected by a rejected one.
#[tokio::test]
async fn g3_why_rejected_yaml() -> Result<()> {
    let world = World::start().await?;
    let fleet = &world.fleet;
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let before = well(fleet, "web").await?;

    let bad = world.manifest(&[("one", "2")]).replace("data:\n", "data:\n  value: \"3\"\n");
    let file = fleet.cli.file("bad.yaml", &bad)?;
    let path = file.display().to_string();
    let refused = fleet.brokkr(["apply", "web", "-f", &path]).await?;
    ensure!(refused.code == 3, "{refused:?}");
    let lines: Vec<&str> = refused.stderr.lines().map(str::trim).collect();
    let prefix = format!("- {path}: document 2 (line ");
    let error = lines.iter().find(|line| line.starts_with(&prefix)).copied().unwrap_or_default();
    ensure!(error.contains("the key `value` appears twice"), "{refused:?}");
    ensure!(lines[0].ends_with("(BRK2004)"), "{refused:?}");
    let next = lines.iter().find_map(|line| line.strip_prefix("next: ")).unwrap_or_default();

    // The API returns the same error.
    let request = fleet.request(Method::POST, "/api/v1/stacks/web/deployment-objects");
    let request = request.header("content-type", "application/yaml").header("idempotency-key", unique("key"));
    let problem: Value = request.body(bad.clone()).send().await?.json().await?;
    ensure!(problem["code"] == "BRK2004" && problem["next"] == next, "{problem}");
    let same = error.trim_start_matches(&format!("- {path}: "));
    ensure!(problem["errors"][0] == same, "{problem} {error}");
    row("6")?.fits("published", "BRK2004", same, next)?;

    let still = well(fleet, "web").await?;
    ensure!(still["wanted_sequence_id"] == before["wanted_sequence_id"], "{still}");
    fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    world.wait_for_value("one", "2").await
}

fn definition(group: &str) -> String {
    format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: widgets, singular: widget, kind: Widget}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]\n"
    )
}

fn widget(group: &str, space: &str) -> String {
    format!("---\napiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: one, namespace: {space}}}\n")
}

fn installed_with(arguments: &[&str]) -> AgentOptions {
    AgentOptions { install: arguments.iter().map(ToString::to_string).collect(), ..AgentOptions::default() }
}

#[tokio::test]
async fn g3_why_a_kind_that_the_cluster_does_not_know() -> Result<()> {
    let group = format!("{}.example.com", unique("why"));
    let world = World::start_with(&installed_with(&["--kind", &format!("*.{group}")])).await?;
    let yaml = format!("{}{}", world.manifest(&[]), widget(&group, &world.namespace));
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let explanation = explained(&world.fleet, "7", "web", "unknown_kind").await?;
    ensure!(
        explanation.message.contains("Widget") && explanation.message.contains(&group),
        "{explanation:?}"
    );
    world.cluster.apply(&definition(&group)).await?;
    well(&world.fleet, "web").await.map(|_| ())
}

#[tokio::test]
async fn g3_why_a_missing_namespace() -> Result<()> {
    let world = World::start().await?;
    world.fleet.submit("web", "env=prod", &config_map_yaml(&world.namespace, "one", "1")).await?;
    let explanation = explained(&world.fleet, "8", "web", "namespace_missing").await?;
    follow(&world, &explanation, "web").await?;
    world.wait_for_value("one", "1").await
}

#[tokio::test]
async fn g3_why_a_permission_that_the_agent_lacks() -> Result<()> {
    let group = format!("{}.example.com", unique("why"));
    Cluster::shared().await?.apply(&definition(&group)).await?;
    let world = World::start().await?;
    let yaml = format!("{}{}", world.manifest(&[]), widget(&group, &world.namespace));
    world.fleet.submit("web", "env=prod", &yaml).await?;
    let explanation = explained(&world.fleet, "9", "web", "forbidden").await?;
    let flag = format!("--kind widgets.{group}");
    ensure!(explanation.next.contains(&flag), "{explanation:?}");
    let environment = [("BROKKR_NAMESPACE", world.agent.namespace())];
    let install = format!("brokkr-agent install {flag}");
    types_with(&world.fleet, &world.cluster, &install, &environment).await?.ok()?;
    well(&world.fleet, "web").await.map(|_| ())
}

fn job(space: &str, image: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: load, namespace: {space}}}\nspec:\n  template:\n    \
         spec: {{restartPolicy: Never, containers: [{{name: load, image: '{image}'}}]}}\n"
    )
}

#[tokio::test]
async fn g3_why_an_immutable_field() -> Result<()> {
    let world = World::start().await?;
    let yaml = |image: &str| format!("{}{}", world.manifest(&[]), job(&world.namespace, image));
    world.fleet.apply("web", "env=prod", &yaml("a:1")).await?;
    world.fleet.submit("web", "env=prod", &yaml("a:2")).await?;
    let explanation = explained(&world.fleet, "10", "web", "immutable_field").await?;
    ensure!(
        explanation.message.contains(&format!("Job {}/load: spec.template", world.namespace)),
        "{explanation:?}"
    );
    follow(&world, &explanation, "web").await
}

#[tokio::test]
async fn g3_why_an_exhausted_quota() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let existing = world.config_maps().list(&Default::default()).await?.items.len();
    world
        .cluster
        .apply(&format!(
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: few, namespace: {}}}\n\
             spec: {{hard: {{count/configmaps: \"{existing}\"}}}}\n",
            world.namespace
        ))
        .await?;
    eventually(WAIT_TIMEOUT, "the quota to be counted", async || {
        let quotas: Api<ResourceQuota> = Api::namespaced(world.client.clone(), &world.namespace);
        quotas.get("few").await.is_ok_and(|quota| quota.status.and_then(|status| status.used).is_some())
    })
    .await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let explanation = explained(&world.fleet, "11", "web", "quota_exceeded").await?;
    ensure!(explanation.message.contains("exceeded quota: few"), "{explanation:?}");
    follow(&world, &explanation, "web").await
}

/// Refuses ConfigMaps with the value 2, as a policy engine would.
async fn refuse(
    axum::Extension(message): axum::Extension<Arc<str>>,
    Json(review): Json<Value>,
) -> Json<Value> {
    let request = &review["request"];
    let allowed = request["object"]["data"]["value"] != "2";
    let response = json!({"uid": request["uid"], "allowed": allowed, "status": {"message": *message}});
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[tokio::test]
async fn g3_why_a_dry_run_that_a_webhook_refuses() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let (scratch, authority) = (Scratch::new("webhook")?, Authority::new("brokkr-test-webhook")?);
    let message: Arc<str> = "data.value: 2 is not allowed here".into();
    let router = axum::Router::new().route("/", post(refuse)).layer(axum::Extension(message));
    let identity = authority.server(&scratch, "webhook", &[])?;
    let (address, server) = listener::serve(&identity, router).await?;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": world.namespace},
        "webhooks": [{
            "name": "values.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                       "operations": ["CREATE", "UPDATE"]}],
            "clientConfig": {"url": format!("https://{address}/"), "caBundle": base64_of(&authority.pem())},
        }],
    });
    world.cluster.apply(&hook.to_string()).await?;
    // The API server learns of it a moment later.
    let (dry, edit) =
        (PatchParams { dry_run: true, ..PatchParams::default() }, json!({"data": {"value": "2"}}));
    eventually(WAIT_TIMEOUT, "the webhook to refuse", async || {
        world.config_maps().patch("one", &dry, &Patch::Merge(&edit)).await.is_err()
    })
    .await?;

    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    let explanation = explained(&world.fleet, "20", "web", "refused_by_webhook").await?;
    ensure!(explanation.message.contains("values.example.com"), "{explanation:?}");
    ensure!(explanation.message.contains("data.value: 2 is not allowed here"), "{explanation:?}");
    follow(&world, &explanation, "web").await?;
    world.cluster.kubectl(["delete", "validatingwebhookconfiguration", &world.namespace]).await?.ok()?;
    server.abort();
    Ok(())
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

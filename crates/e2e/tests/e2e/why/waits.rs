//! Situations 15 to 18: the stack waits for something else.

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::{AgentOptions, Cluster, Fleet, eventually, unique};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::asking::{explained, explained_in, follow, types, well, well_in};
use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml, namespace_yaml};

#[tokio::test]
async fn g3_why_a_finalizer_that_is_never_removed() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("goes", "1")])).await?;
    let stuck = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    world.config_maps().patch("goes", &PatchParams::default(), &stuck).await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let explanation = explained(&world.fleet, "15", "web", "finalizer").await?;
    ensure!(explanation.message.contains("example.com/hold"), "{explanation:?}");
    follow(&world, &explanation, "web").await?;
    world.wait_until_gone("goes").await
}

#[tokio::test]
async fn g3_why_a_contested_field() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let rival = PatchParams { field_manager: Some("rival".into()), ..PatchParams::default() };
    let take = async |round: u32| {
        let edit = Patch::Merge(json!({"data": {"value": format!("rival {round}")}}));
        world.config_maps().patch("one", &rival, &edit).await.map(|_| ())
    };
    let mut round = 0;
    eventually(WAIT_TIMEOUT, "the contest to be reported", async || {
        round += 1;
        take(round).await?;
        world.wait_for_value("one", "1").await?;
        let statuses = world.statuses("web").await?;
        let conditions = statuses[0]["conditions"].as_array().context("conditions")?;
        let contested =
            conditions.iter().find(|condition| condition["kind"] == "Contested").context("a verdict")?;
        ensure!(contested["status"] == "True", "round {round}");
        anyhow::Ok(())
    })
    .await?;
    let explanation = explained(&world.fleet, "16", "web", "contested").await?;
    ensure!(explanation.message.contains("rival changes .data.value"), "{explanation:?}");
    ensure!(explanation.next.ends_with("the annotation brokkr.io/yield: data.value"), "{explanation:?}");
    // The status shows it as well.
    let status = world.fleet.brokkr(["status", "web"]).await?.ok()?.stdout;
    ensure!(status.contains("rival changes .data.value"), "{status}");

    // The next step of the explanation.
    let yields = world.manifest(&[("one", "1")]).replace(
        "metadata:\n  name: one\n",
        "metadata:\n  name: one\n  annotations:\n    brokkr.io/yield: data.value\n",
    );
    world.fleet.apply("web", "env=prod", &yields).await?;
    well(&world.fleet, "web").await?;
    take(100).await?;
    // A later version does not change it.
    world
        .fleet
        .apply("web", "env=prod", &format!("{yields}{}", config_map_yaml(&world.namespace, "two", "2")))
        .await?;
    world.wait_for_value("one", "rival 100").await?;
    well(&world.fleet, "web").await.map(|_| ())
}

#[tokio::test]
async fn g3_why_a_mass_prune_that_waits_for_approval() -> Result<()> {
    let world = World::start().await?;
    let names: Vec<String> = (0..60).map(|number| format!("map-{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    world.fleet.apply("web", "env=prod", &world.manifest(&many)).await?;
    world.fleet.submit("web", "env=prod", &world.manifest(&many[..1])).await?;
    let explanation = explained(&world.fleet, "17", "web", "awaits_approval").await?;
    ensure!(explanation.command()?.contains("--expect 59"), "{explanation:?}");
    follow(&world, &explanation, "web").await?;
    world.wait_until_gone("map-59").await
}

/// Returns the account of the project `shop`, with all permissions on ConfigMaps in every namespace.
fn account(space: &str) -> String {
    format!(
        "{}---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: brokkr-shop, namespace: {space}}}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {space}}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}}]\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {space}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {space}}}\n\
         subjects: [{{kind: ServiceAccount, name: brokkr-shop, namespace: {space}}}]\n",
        namespace_yaml(space)
    )
}

#[tokio::test]
async fn g3_why_a_stack_that_its_grant_does_not_cover() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (space, extra) = (unique("space"), unique("extra"));
    cluster.apply(&format!("{}{}", account(&space), namespace_yaml(&extra))).await?;
    let install = ["--impersonate".to_owned(), format!("{space}/brokkr-shop")].to_vec();
    let fleet = Fleet::start().await?;
    let options = AgentOptions { install, ..AgentOptions::default() };
    let world = World { namespace: space, ..World::start_in(cluster, fleet, &options).await? };
    let (fleet, space) = (&world.fleet, &world.namespace);
    fleet.brokkr(["project", "create", "shop"]).await?.ok()?;
    let grant = format!(
        "brokkr grant set shop --to-project shop -l env=prod --namespace {space} --kind '*' \
         --account {space}/brokkr-shop"
    );
    types(fleet, &world.cluster, &grant).await?.ok()?;
    let submit = async |yaml: String| -> Result<()> {
        let file = fleet.cli.file("web.yaml", &yaml)?.display().to_string();
        let arguments = ["--project", "shop", "apply", "web", "-f", &file, "--to", "env=prod"];
        fleet.brokkr(arguments).await?.ok().map(|_| ())
    };
    submit(config_map_yaml(space, "one", "1")).await?;
    well_in(fleet, "shop", "web").await?;
    submit(format!("{}{}", config_map_yaml(space, "one", "2"), config_map_yaml(&extra, "two", "2"))).await?;
    let explanation = explained_in(fleet, "18", "shop", "web", "not_granted").await?;
    ensure!(explanation.message.contains(&format!("the namespace {extra}")), "{explanation:?}");
    types(fleet, &world.cluster, explanation.command()?).await?.ok()?;
    well_in(fleet, "shop", "web").await?;
    world.wait_for_value("one", "2").await
}

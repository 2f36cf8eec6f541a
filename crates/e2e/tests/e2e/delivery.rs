//! Delivery, from a submission to a healthy workload and to the next version.

use anyhow::Result;
use brokkr_testkit::{Attempt, eventually};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use brokkr_testkit::world::{
    WAIT_TIMEOUT, World, config_map_yaml, deployment_yaml, namespace_yaml, uid_and_version,
};

const HOPS: [&str; 9] =
    ["published", "targeted", "released", "fetched", "verified", "applied", "pruned", "healthy", "reported"];

/// Submit → applied → ready under kwok → event at the broker; every hop has its time, in order.
#[tokio::test]
async fn f6_a_submission_is_applied_ready_and_reported_with_every_hop_in_order() -> Result<()> {
    let world = World::start().await?;
    let yaml = format!("{}{}", namespace_yaml(&world.namespace), deployment_yaml(&world.namespace, "web", 3));
    world.fleet.apply("web", "env=prod", &yaml).await?;

    let status =
        world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    let times: Vec<Timestamp> = HOPS
        .iter()
        .map(|hop| {
            status["hops"][hop].as_str().unwrap_or_else(|| panic!("no time for {hop}: {status}")).parse()
        })
        .collect::<Result<_, _>>()?;
    assert!(times.is_sorted(), "hops out of order: {status}");

    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(world.client.clone(), &world.namespace);
    let live = deployments.get("web").await?;
    assert_eq!(live.status.and_then(|status| status.ready_replicas), Some(3));

    let events = world.events("web").await?;
    let reported: Vec<&str> = events.iter().filter_map(|event| event["transition"].as_str()).collect();
    assert_eq!(reported, ["healthy", "applied"], "newest first, each once: {events:?}");
    Ok(())
}

/// F6: applied is not ready. A workload without a node is reported as such, and `--wait` does not succeed.
#[tokio::test]
async fn f6_an_applied_stack_that_is_not_ready_is_never_reported_healthy() -> Result<()> {
    let world = World::start().await?;
    let stuck = deployment_yaml(&world.namespace, "stuck", 1).replace(
        "    spec:\n      containers:",
        "    spec:\n      nodeSelector: {no: such-node}\n      containers:",
    );
    assert!(stuck.contains("nodeSelector"));
    let yaml = format!("{}{stuck}", namespace_yaml(&world.namespace));
    let output = world.fleet.try_apply("web", "env=prod", &yaml, "8s").await?;
    assert_eq!(output.code, 124, "{}{}", output.stdout, output.stderr);
    let status =
        world.wait_for_status("web", "shop-1", "applied", |status| status["state"] == "applied").await?;
    assert_eq!((&status["ready"], &status["total"]), (&json!(1), &json!(2)), "{status}");
    let events = world.events("web").await?;
    assert!(events.iter().all(|event| event["transition"] != "healthy"), "{events:?}");
    Ok(())
}

/// B4, C3, F4: ownership metadata on the resource, and the record in the cluster.
#[tokio::test]
async fn b4_c3_f4_every_resource_has_its_ownership_metadata_and_is_in_the_record() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "2")])).await?;
    let stack = world.fleet.get("/api/v1/stacks/web").await?;
    let history = world.fleet.get("/api/v1/stacks/web/deployment-objects").await?;
    for name in ["one", "two"] {
        let map = world.config_map(name).await?.expect(name);
        let annotations = map.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations["brokkr.io/stack-id"], stack["id"].as_str().unwrap());
        assert_eq!(annotations["brokkr.io/checksum"], history["items"][0]["checksum"].as_str().unwrap());
    }
    let records = world.cluster.kubectl(["get", "stacks.brokkr.io"]).await?.ok()?.stdout;
    let id = stack["id"].as_str().unwrap();
    let record = format!("web-{}", &id[id.len() - 12..]);
    let line = records.lines().find(|line| line.starts_with(&record)).unwrap_or_default();
    assert!(line.contains("3/3") && line.contains("healthy"), "readable: {records}");

    // The next version puts a new checksum on every resource, also on unchanged ones (B4); resources of the
    // stack that have the older checksum are updated or pruned (C3).
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    assert!(world.config_map("two").await?.is_none());
    let history = world.fleet.get("/api/v1/stacks/web/deployment-objects").await?;
    let map = world.config_map("one").await?.expect("one");
    let annotations = map.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["brokkr.io/checksum"], history["items"][0]["checksum"].as_str().unwrap());
    Ok(())
}

/// The next deployment object lacks one resource, which is pruned; a foreign one beside it is not touched.
#[tokio::test]
async fn b5_c5_prune_removes_what_is_no_longer_contained_and_nothing_foreign() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("stays", "1"), ("goes", "1")])).await?;
    let foreign = uid_and_version(&world.apply_foreign("theirs").await?);
    let stays = world.config_map("stays").await?.expect("stays").metadata.uid;

    world.fleet.apply("web", "env=prod", &world.manifest(&[("stays", "2")])).await?;
    assert!(world.config_map("goes").await?.is_none(), "pruned when apply --wait returns");
    assert_eq!(world.config_map("stays").await?.expect("stays").metadata.uid, stays);
    assert_eq!(uid_and_version(&world.config_map("theirs").await?.expect("theirs")), foreign);
    Ok(())
}

/// B6: a resource with an owner is left to garbage collection.
#[tokio::test]
async fn b6_a_resource_with_an_owner_is_skipped_by_prune() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("stays", "1"), ("owned", "1")])).await?;
    let owner = world.apply_foreign("owner").await?;
    let patch = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
    }]}});
    world.config_maps().patch("owned", &PatchParams::default(), &Patch::Merge(patch)).await?;

    world.fleet.apply("web", "env=prod", &world.manifest(&[("stays", "2")])).await?;
    assert!(world.config_map("owned").await?.is_some(), "left to its owner");
    world.config_maps().delete("owner", &Default::default()).await?;
    world.wait_until_gone("owned").await
}

/// B3: fields that Brokkr does not set, and that others do, stay.
#[tokio::test]
async fn b3_fields_of_others_stay_through_apply_and_repair() -> Result<()> {
    let world = World::start().await?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"team": "red"}},
        "data": {"extra": "theirs"},
    });
    let parameters = PatchParams::apply("another-client");
    world.config_maps().patch("one", &parameters, &Patch::Apply(&theirs)).await?;

    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "2")])).await?;
    world.edit("one", "wrong").await?;
    world.wait_for_value("one", "2").await?;
    let map = world.config_map("one").await?.expect("one");
    assert_eq!(map.data.unwrap_or_default()["extra"], "theirs");
    assert_eq!(map.metadata.labels.unwrap_or_default()["team"], "red");
    let managers: Vec<_> = map
        .metadata
        .managed_fields
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| entry.manager)
        .collect();
    assert!(managers.contains(&"brokkr".to_owned()), "{managers:?}");
    Ok(())
}

/// Equal content again gets a new sequence id and a full reconcile, and changes no resourceVersion.
#[tokio::test]
async fn a8_b7_b8_c2_equal_content_again_is_a_new_sequence_a_full_reconcile_and_moves_nothing() -> Result<()>
{
    let world = World::start().await?;
    let yaml = world.manifest(&[("one", "1"), ("two", "2")]);
    world.fleet.apply("web", "env=prod", &yaml).await?;
    let first = world.fleet.get("/api/v1/stacks/web").await?["sequence_id"].as_i64().unwrap();
    let mut before = Vec::new();
    for name in ["one", "two"] {
        before.push(uid_and_version(&world.config_map(name).await?.expect(name)));
    }
    let mark = world.cluster.audit().mark()?;
    world.fleet.apply("web", "env=prod", &yaml).await?;
    let second = world.fleet.get("/api/v1/stacks/web").await?["sequence_id"].as_i64().unwrap();
    assert!(second > first);
    let status =
        world.wait_for_status("web", "shop-1", "healthy", |status| status["state"] == "healthy").await?;
    assert_eq!(status["sequence_id"], second);
    let mut after = Vec::new();
    for name in ["one", "two"] {
        after.push(uid_and_version(&world.config_map(name).await?.expect(name)));
    }
    assert_eq!(before, after, "no resource version changed");
    let applied = world.agent.requests(mark)?;
    let patches =
        applied.iter().filter(|request| request.verb == "patch" && request.namespace == world.namespace);
    assert!(patches.count() >= 2, "a full reconcile: {applied:?}");

    // B8: a different object is updated, a missing one is created, an equal one is not touched.
    world
        .fleet
        .apply("web", "env=prod", &world.manifest(&[("one", "1"), ("two", "new"), ("three", "3")]))
        .await?;
    assert_eq!(world.value("two").await?.as_deref(), Some("new"));
    assert_eq!(world.value("three").await?.as_deref(), Some("3"));
    Ok(())
}

/// B1: a definition, its resource and a namespace come in one deployment object, in the wrong order.
#[tokio::test]
async fn b1_namespaces_and_definitions_are_ready_before_their_dependents() -> Result<()> {
    let world = World::start().await?;
    let (space, group) = (&world.namespace, format!("{}.example.com", world.namespace));
    // Custom kinds have to be allowed by an administrator.
    let kinds = format!("*.{group}");
    brokkr_testkit::agent::install(&world.cluster, world.agent.namespace(), &["--kind", &kinds]).await?;
    let yaml = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: first, namespace: {space}}}\nspec: {{size: 3}}\n\
         {}{}---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: widgets.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: widgets, singular: widget, kind: Widget}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        properties:\n          spec: {{type: object, properties: {{size: {{type: integer}}}}}}\n",
        config_map_yaml(space, "beside", "1"),
        namespace_yaml(space),
    );
    let mark = world.cluster.audit().mark()?;
    world.fleet.apply("widgets", "env=prod", &yaml).await?;
    let widget = world
        .cluster
        .kubectl(["get", &format!("widgets.{group}"), "first", "-n", space, "-o", "json"])
        .await?;
    assert_eq!(widget.ok()?.json::<Value>()?["spec"]["size"], 3);
    let writes: Vec<_> =
        world.agent.requests(mark)?.into_iter().filter(|request| request.is_write()).collect();
    let refused: Vec<_> = writes.iter().filter(|request| request.code >= 400).collect();
    assert!(refused.is_empty(), "nothing was tried too early: {refused:?}");

    // It is deleted in the reverse order.
    world.fleet.delete("widgets").await?;
    let definition = world.cluster.kubectl(["get", "crd", &format!("widgets.{group}")]).await?;
    assert_ne!(definition.code, 0, "the definition is gone");
    eventually(WAIT_TIMEOUT, "the namespace to be gone", async || match world.live_namespace().await {
        Ok(None) => Attempt::Done(()),
        other => Attempt::NotYet(format!("{other:?}")),
    })
    .await
}

//! Rows 34 to 36: lists that are old, broken off, or of too few kinds.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, Canned, Exchange, Matcher};
use brokkr_testkit::{Look, eventually};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, brief, configmap, footprint};

const MAPS: [(&str, &str); 4] = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];

fn deletes(world: &World, mark: usize) -> Vec<Exchange> {
    world.writes(mark).into_iter().filter(|write| write.asked.method == http::Method::DELETE).collect()
}

/// The list that the agent starts from is older than its own last run: objects are missing, others are gone since.
#[tokio::test]
async fn row_34_a_list_from_an_older_snapshot_deletes_nothing_newer() -> Result<()> {
    let world = World::start().await?;
    world.without_streaming();
    world.deliver(&[("a", "0"), ("old", "0")]).await?;
    world.shop.restart()?;
    world.converged(&[("a", "0"), ("old", "0")]).await?;
    let then = world.api.snapshot_of_lists();
    world.deliver(&MAPS).await?;
    // Made anew since that list: a delete by what the list says would hit another object.
    world.shop.kill9();
    let users = footprint(&world.put_foreign("old").await?);
    let mark = world.api.mark();
    let stale = world.api.when(Matcher::lists("configmaps"), Action::Older(then));
    world.api.when(Matcher::watches("configmaps"), Action::Freeze);
    world.shop.start()?;
    stale.reached(1, PATIENCE).await?;
    world.submit(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.sees_value("b", "2").await?;
    let kept = world.map("old").await?.expect("S7: made by a user after that list");
    assert_eq!(footprint(&kept), users, "and untouched");
    assert!(deletes(&world, mark).iter().all(|delete| !delete.asked.is_named("old") || !delete.succeeded()));

    world.api.heal();
    world.converged(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    let kept = world.map("old").await?.expect("the user's object lives");
    assert_eq!(footprint(&kept), users);
    world.invariants().await
}

#[tokio::test]
async fn row_35_half_a_list_is_never_used() -> Result<()> {
    let world = World::start().await?;
    world.deliver(&MAPS).await?;
    world.shop.kill9();
    let mark = world.api.mark();
    world.without_streaming();
    let further = |asked: &brokkr_testkit::proxy::Asked| asked.query.contains("continue=");
    let broken =
        world.api.when(Matcher::lists("configmaps").and(further), Action::Answer(Canned::internal()));
    world.api.when(Matcher::lists("configmaps"), Action::pages_of(2));
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    world.shop.start()?;
    broken.reached(2, PATIENCE).await?;
    let writes: Vec<_> = world.writes(mark).iter().filter(|write| !is_record(write)).map(brief).collect();
    assert!(writes.is_empty(), "S8: decided on half a list: {writes:?}");
    assert_eq!(world.live().await?.len(), MAPS.len());

    world.api.heal();
    world.converged(&[("a", "2"), ("b", "2")]).await?;
    world.invariants().await
}

fn is_record(exchange: &Exchange) -> bool {
    exchange.asked.place.as_ref().is_some_and(|place| place.group == "brokkr.io")
}

/// Before a namespace is deleted its contents are listed. Half of them is not enough to know.
#[tokio::test]
async fn row_35_a_namespace_is_not_deleted_on_half_a_list_of_what_is_inside() -> Result<()> {
    let world = World::start().await?;
    let inner = format!("{}-inner", world.space);
    let yaml = format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n");
    world.fleet.apply("web", "env=prod", &(yaml + &configmap(&inner, "a", "1"))).await?;
    let foreign: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(world.client.clone(), &inner);
    // Last in the order of names, so that it is on the page that is never answered.
    let theirs = serde_json::from_value(json!({"metadata": {"name": "zz-theirs"}}))?;
    foreign.create(&Default::default(), &theirs).await?;
    let inside = format!("/namespaces/{inner}/configmaps");
    let further = |asked: &brokkr_testkit::proxy::Asked| asked.query.contains("continue=");
    let broken = world.api.when(Matcher::path(&inside).and(further), Action::Answer(Canned::internal()));
    world.api.when(Matcher::path(&inside).and(|asked| asked.is_list()), Action::pages_of(1));
    world.delete_stack().await?;
    broken.reached(2, PATIENCE).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let kept = namespaces.get(&inner).await?;
    assert!(kept.metadata.deletion_timestamp.is_none(), "C6: what is inside is not known");

    world.api.heal();
    world.gone().await?;
    assert!(foreign.get_opt("zz-theirs").await?.is_some(), "C5: not Brokkr's");
    let left = namespaces.get(&inner).await?;
    assert!(left.metadata.deletion_timestamp.is_none(), "C6: left, since something foreign is inside");
    namespaces.delete(&inner, &Default::default()).await?;
    world.invariants().await
}

/// An aggregated API is down: its kinds are missing from discovery, and are marked so.
#[tokio::test]
async fn row_36_kinds_that_discovery_cannot_tell_keep_a_namespace_alive() -> Result<()> {
    let world = World::start().await?;
    let inner = format!("{}-inner", world.space);
    let yaml = format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n");
    world.fleet.apply("web", "env=prod", &(yaml + &configmap(&inner, "a", "1"))).await?;
    // Something foreign of a kind whose group will not be told.
    let theirs = format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: theirs\n  namespace: {inner}\nspec: {{}}\n"
    );
    world.cluster.apply(&theirs).await?;
    let stale = world
        .api
        .when(Matcher::new(|asked| asked.path == "/apis"), Action::rewrite(|_, body| without_leases(&body)));
    world.delete_stack().await?;
    stale.reached(1, PATIENCE).await?;
    world.polls(3).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let kept = namespaces.get_opt(&inner).await?;
    assert!(
        kept.is_some_and(|kept| kept.metadata.deletion_timestamp.is_none()),
        "C6: deleted although a group could not be told"
    );

    world.api.heal();
    world.gone().await?;
    let lease = world.cluster.kubectl(["get", "lease", "theirs", "-n", &inner]).await?;
    assert!(lease.success(), "C5: {}", lease.stderr);
    namespaces.delete(&inner, &Default::default()).await?;
    world.invariants().await
}

/// As kube-apiserver answers when the server behind a group cannot be reached.
fn without_leases(body: &Bytes) -> Bytes {
    let mut document: Value = serde_json::from_slice(body).unwrap_or_default();
    for group in document["items"].as_array_mut().into_iter().flatten() {
        if group["metadata"]["name"] == "coordination.k8s.io" {
            for version in group["versions"].as_array_mut().into_iter().flatten() {
                version["freshness"] = json!("Stale");
                version["resources"] = json!([]);
            }
        }
    }
    Bytes::from(document.to_string())
}

/// A kind that cannot be told is waited for; nothing of it is deleted because it is not seen.
#[tokio::test]
async fn row_36_a_stack_whose_kinds_cannot_be_told_is_not_pruned() -> Result<()> {
    let world = World::start().await?;
    let lease = |name: &str| {
        format!(
            "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: {name}-{}\n  namespace: {}\nspec: {{}}\n",
            world.tag, world.space
        )
    };
    world.fleet.apply("web", "env=prod", &format!("{}{}", lease("one"), lease("two"))).await?;
    let mark = world.api.mark();
    let down =
        world.api.when(Matcher::path("/apis/coordination.k8s.io"), Action::Answer(Canned::unavailable()));
    world.shop.restart()?;
    world.fleet.submit("web", "env=prod", &lease("one")).await?;
    down.reached(3, PATIENCE).await?;
    assert!(deletes(&world, mark).is_empty(), "nothing is deleted that cannot be seen");

    world.api.heal();
    eventually(PATIENCE, "the second to be pruned", async || {
        let list = world.cluster.kubectl(["get", "leases", "-n", &world.space, "-o", "name"]).await?.ok()?;
        let names: Vec<&str> = list.stdout.lines().collect();
        anyhow::ensure!(names.len() == 1 && names[0].contains("one-"), "{names:?}");
        Ok(())
    })
    .await?;
    eventually(PATIENCE, "that to be reported", async || match world.told("web", "applied").await {
        Ok(1) => Look::Yes(()),
        other => Look::NotYet(format!("{other:?}")),
    })
    .await?;
    world.invariants().await
}

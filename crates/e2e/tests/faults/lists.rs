//! Rows 34 to 36: lists that are stale or incomplete, and kinds that are missing from discovery.

use anyhow::Result;
use brokkr_testkit::proxy::{Action, CannedResponse, Exchange, Matcher};
use brokkr_testkit::{Attempt, eventually};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use crate::world::{FaultWorld, WAIT_TIMEOUT, config_map_yaml, summary, uid_and_version};

const MAPS: [(&str, &str); 4] = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];

fn deletes(world: &FaultWorld, mark: usize) -> Vec<Exchange> {
    world
        .writes_since(mark)
        .into_iter()
        .filter(|write| write.request.method == http::Method::DELETE)
        .collect()
}

/// The list at the agent's start is older than its last run: some objects are missing, others have been deleted since.
#[tokio::test]
async fn row_34_a_list_from_an_older_snapshot_deletes_nothing_newer() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.refuse_streaming_lists();
    world.deliver(&[("a", "0"), ("old", "0")]).await?;
    world.agent.restart()?;
    world.wait_until_converged(&[("a", "0"), ("old", "0")]).await?;
    let snapshot = world.api_proxy.snapshot_of_lists();
    world.deliver(&MAPS).await?;
    // `old` is recreated by a user after that list: a delete according to the list would hit another object.
    world.agent.kill9();
    let users = uid_and_version(&world.apply_foreign("old").await?);
    let mark = world.api_proxy.mark();
    let stale = world.api_proxy.when(Matcher::lists("configmaps"), Action::StaleLists(snapshot));
    world.api_proxy.when(Matcher::watches("configmaps"), Action::Freeze);
    world.agent.start()?;
    stale.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.submit(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    world.wait_for_value("b", "2").await?;
    let kept = world.config_map("old").await?.expect("S7: made by a user after that list");
    assert_eq!(uid_and_version(&kept), users, "and untouched");
    assert!(
        deletes(&world, mark).iter().all(|delete| !delete.request.is_named("old") || !delete.succeeded())
    );

    world.api_proxy.heal();
    world.wait_until_converged(&[("a", "1"), ("b", "2"), ("c", "1")]).await?;
    let kept = world.config_map("old").await?.expect("the user's object exists");
    assert_eq!(uid_and_version(&kept), users);
    world.assert_invariants().await
}

#[tokio::test]
async fn row_35_half_a_list_is_never_used() -> Result<()> {
    let world = FaultWorld::start().await?;
    world.deliver(&MAPS).await?;
    world.agent.kill9();
    let mark = world.api_proxy.mark();
    world.refuse_streaming_lists();
    let further = |request: &brokkr_testkit::proxy::ProxiedRequest| request.query.contains("continue=");
    let broken = world
        .api_proxy
        .when(Matcher::lists("configmaps").and(further), Action::Respond(CannedResponse::internal()));
    world.api_proxy.when(Matcher::lists("configmaps"), Action::pages_of(2));
    world.submit(&[("a", "2"), ("b", "2")]).await?;
    world.agent.start()?;
    broken.wait_for_hits(2, WAIT_TIMEOUT).await?;
    let writes: Vec<_> =
        world.writes_since(mark).iter().filter(|write| !is_record(write)).map(summary).collect();
    assert!(writes.is_empty(), "S8: decided on half a list: {writes:?}");
    assert_eq!(world.managed_config_maps().await?.len(), MAPS.len());

    world.api_proxy.heal();
    world.wait_until_converged(&[("a", "2"), ("b", "2")]).await?;
    world.assert_invariants().await
}

fn is_record(exchange: &Exchange) -> bool {
    exchange.request.resource.as_ref().is_some_and(|path| path.group == "brokkr.io")
}

/// Before a namespace is deleted, its contents are listed. Half a list is not enough.
#[tokio::test]
async fn row_35_a_namespace_is_not_deleted_on_half_a_list_of_its_contents() -> Result<()> {
    let world = FaultWorld::start().await?;
    let inner = format!("{}-inner", world.namespace);
    let yaml = format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n");
    world.fleet.apply("web", "env=prod", &(yaml + &config_map_yaml(&inner, "a", "1"))).await?;
    let foreign: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(world.client.clone(), &inner);
    // Last by name, so that it is on the page that fails.
    let theirs = serde_json::from_value(json!({"metadata": {"name": "zz-theirs"}}))?;
    foreign.create(&Default::default(), &theirs).await?;
    let inside = format!("/namespaces/{inner}/configmaps");
    let further = |request: &brokkr_testkit::proxy::ProxiedRequest| request.query.contains("continue=");
    let broken = world
        .api_proxy
        .when(Matcher::path(&inside).and(further), Action::Respond(CannedResponse::internal()));
    world.api_proxy.when(Matcher::path(&inside).and(|request| request.is_list()), Action::pages_of(1));
    world.delete_stack().await?;
    broken.wait_for_hits(2, WAIT_TIMEOUT).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let kept = namespaces.get(&inner).await?;
    assert!(kept.metadata.deletion_timestamp.is_none(), "C6: its contents are not known");

    world.api_proxy.heal();
    world.wait_until_deleted().await?;
    assert!(foreign.get_opt("zz-theirs").await?.is_some(), "C5: not Brokkr's");
    let left = namespaces.get(&inner).await?;
    assert!(left.metadata.deletion_timestamp.is_none(), "C6: left, since something foreign is inside");
    namespaces.delete(&inner, &Default::default()).await?;
    world.assert_invariants().await
}

/// An aggregated API is down: its kinds are missing from discovery, which marks their group as stale.
#[tokio::test]
async fn row_36_kinds_that_discovery_cannot_list_prevent_the_deletion_of_a_namespace() -> Result<()> {
    let world = FaultWorld::start().await?;
    let inner = format!("{}-inner", world.namespace);
    let yaml = format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {inner}\n");
    world.fleet.apply("web", "env=prod", &(yaml + &config_map_yaml(&inner, "a", "1"))).await?;
    // A foreign object of a kind that discovery will not list.
    let theirs = format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: theirs\n  namespace: {inner}\nspec: {{}}\n"
    );
    world.cluster.apply(&theirs).await?;
    let stale = world.api_proxy.when(
        Matcher::new(|request| request.path == "/apis"),
        Action::change_body(|_, body| without_leases(&body)),
    );
    world.delete_stack().await?;
    stale.wait_for_hits(1, WAIT_TIMEOUT).await?;
    world.wait_for_polls(3).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let kept = namespaces.get_opt(&inner).await?;
    assert!(
        kept.is_some_and(|kept| kept.metadata.deletion_timestamp.is_none()),
        "C6: deleted although a group could not be listed"
    );

    world.api_proxy.heal();
    world.wait_until_deleted().await?;
    let lease = world.cluster.kubectl(["get", "lease", "theirs", "-n", &inner]).await?;
    assert!(lease.success(), "C5: {}", lease.stderr);
    namespaces.delete(&inner, &Default::default()).await?;
    world.assert_invariants().await
}

/// Returns discovery as kube-apiserver does when the server of a group is unreachable.
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

/// The agent waits for a kind that cannot be listed, and deletes nothing of it.
#[tokio::test]
async fn row_36_a_stack_with_kinds_that_discovery_cannot_list_is_not_pruned() -> Result<()> {
    let world = FaultWorld::start().await?;
    let lease = |name: &str| {
        format!(
            "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: {name}-{}\n  namespace: {}\nspec: {{}}\n",
            world.tag, world.namespace
        )
    };
    world.fleet.apply("web", "env=prod", &format!("{}{}", lease("one"), lease("two"))).await?;
    let mark = world.api_proxy.mark();
    let down = world
        .api_proxy
        .when(Matcher::path("/apis/coordination.k8s.io"), Action::Respond(CannedResponse::unavailable()));
    world.agent.restart()?;
    world.fleet.submit("web", "env=prod", &lease("one")).await?;
    down.wait_for_hits(3, WAIT_TIMEOUT).await?;
    assert!(deletes(&world, mark).is_empty(), "nothing is deleted that cannot be seen");

    world.api_proxy.heal();
    eventually(WAIT_TIMEOUT, "the second to be pruned", async || {
        let list =
            world.cluster.kubectl(["get", "leases", "-n", &world.namespace, "-o", "name"]).await?.ok()?;
        let names: Vec<&str> = list.stdout.lines().collect();
        anyhow::ensure!(names.len() == 1 && names[0].contains("one-"), "{names:?}");
        Ok(())
    })
    .await?;
    eventually(WAIT_TIMEOUT, "the prune to be reported", async || {
        match world.count_reported("web", "applied").await {
            Ok(1) => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        }
    })
    .await?;
    world.assert_invariants().await
}

//! The watches with a server that works.

use std::collections::BTreeSet;

use super::rig::{MAPS, Rig, in_namespace, key, kind, maps};
use super::server::ScriptedRequest;
use crate::model::{Observed as _, Prerequisite};
use crate::observe::Scope;

#[tokio::test]
async fn f3_only_metadata_of_objects_with_our_label_is_requested() {
    let mut rig = Rig::new();
    rig.watch_maps().await;
    let world = rig.server.world();
    assert!(world.asked.iter().all(|(_, uri)| uri.contains("labelSelector=brokkr.io%2Fagent%3D")));
    assert!(world.accepts.iter().all(|accept| accept.contains("PartialObjectMetadata")));
}

#[tokio::test]
async fn a_server_that_streams_lists_is_asked_once() {
    let mut rig = Rig::new();
    rig.server.world().minor = 34;
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    rig.server.world().put(MAPS, "later", "2");
    rig.until("later", |rig| rig.knows(&maps(), "settings") && rig.knows(&maps(), "later")).await;
    assert_eq!(rig.server.asked(ScriptedRequest::List) + rig.server.asked(ScriptedRequest::Watch), 0);
    assert_eq!(rig.server.asked(ScriptedRequest::Stream), 1);
}

#[tokio::test]
async fn a_forbidden_watch_is_reported_with_the_reason_and_retried() {
    let mut rig = Rig::new();
    rig.server.world().forbidden = true;
    rig.ensure([&maps()]);
    rig.until("reported", |rig| rig.times("unwatchable as scripted") == 1).await;
    rig.until("asked again", |rig| rig.server.asked(ScriptedRequest::List) >= 3).await;
    assert!(!rig.synced(&maps()));
    assert_eq!(rig.times("unwatchable as scripted"), 1, "reported once");
    rig.server.world().forbidden = false;
    rig.until("granted", |rig| rig.synced(&maps())).await;
}

#[tokio::test]
async fn without_cluster_wide_rights_only_namespaces_in_use_are_watched() {
    const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
    let namespaces = (0..100).map(|number| format!("other-{number}")).chain(["shop".into(), "bank".into()]);
    let mut rig = Rig::in_scope(Scope::Namespaces(namespaces.collect()));
    rig.server.world().unserved.push("/api/v1/namespaces/bank/configmaps".into());
    // Discovery still lists the kind, so the state of the second namespace is not decided yet.
    rig.server.world().serve_maps();
    rig.server.world().put_silently(SHOP, "settings", "1");
    rig.watches.ensure([in_namespace("shop", &maps()), in_namespace("bank", &maps())]);
    rig.watches.ensure([in_namespace("shop", &maps())]);
    assert_eq!(rig.watches.count(), 2);
    rig.until("one listed", |rig| rig.synced(&maps()) && rig.knows(&maps(), "settings")).await;
    let in_bank = key("bank", &maps(), "any");
    assert!(!rig.index.synced(&in_bank) && !rig.index.synced(&key("other-1", &maps(), "any")));
    rig.server.world().unserved.clear();
    rig.until("both listed", |rig| rig.index.synced(&in_bank)).await;
    assert!(rig.knows(&maps(), "settings"), "the list of one namespace does not affect the other");
    rig.watches.retain(&BTreeSet::from([in_namespace("shop", &maps())]));
    rig.until("one ended", |rig| rig.times("unwatched") == 1).await;
    assert!(rig.synced(&maps()) && rig.knows(&maps(), "settings") && !rig.index.synced(&in_bank));
}

#[tokio::test]
async fn a_kind_without_users_is_no_longer_watched_and_can_be_watched_again() {
    let mut rig = Rig::new();
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    rig.watches.retain(&BTreeSet::from([in_namespace("shop", &maps())]));
    rig.watches.retain(&BTreeSet::new());
    rig.ensure([&maps()]);
    rig.until("ended and begun", |rig| rig.times("unwatched") == 1 && rig.times("listed") == 2).await;
    let ended = rig.changes_seen.iter().position(|change| change == "unwatched").unwrap();
    assert!(
        rig.changes_seen[ended..].contains(&"listing".to_owned()),
        "the old watch ends before the new one starts"
    );
    assert!(rig.synced(&maps()) && rig.knows(&maps(), "settings"));

    rig.watches.retain(&BTreeSet::new());
    rig.until("ended", |rig| rig.times("unwatched") == 2).await;
    assert!(!rig.synced(&maps()) && !rig.knows(&maps(), "settings"));
    rig.until("hung up", |rig| !rig.server.world().watched(MAPS)).await;
}

#[tokio::test]
async fn prerequisites_are_watched_on_request_and_without_a_label_selector() {
    const NAMESPACES: &str = "/api/v1/namespaces";
    let mut rig = Rig::new();
    rig.watches.watch_prerequisite(Prerequisite::Namespace);
    rig.watches.watch_prerequisite(Prerequisite::Namespace);
    rig.until("watched", |rig| rig.server.world().watched(NAMESPACES)).await;
    rig.server.world().put(NAMESPACES, "shop", "1");
    rig.until("prerequisite changed", |rig| rig.times("prerequisite changed Namespace shop") == 1).await;
    assert_eq!(rig.server.asked(ScriptedRequest::List), 1);
    assert!(rig.server.world().asked.iter().all(|(_, uri)| !uri.contains("labelSelector")));
    rig.watches.unwatch_prerequisite(Prerequisite::Namespace);
    rig.until("quiet", |rig| !rig.server.world().watched(NAMESPACES)).await;
}

#[tokio::test]
async fn at_most_five_lists_run_at_the_same_time() {
    let mut rig = Rig::new();
    let kinds: Vec<_> =
        (0..20).map(|n| kind("many.example", "v1", &format!("K{n}"), &format!("k{n}"))).collect();
    rig.ensure(&kinds);
    rig.until("all known", |rig| kinds.iter().all(|kind| rig.synced(kind))).await;
    let most = rig.server.world().most_listing;
    assert!((2..=5).contains(&most), "{most} at once");
}

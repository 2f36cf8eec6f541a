//! The known ways in which a watch can fail.

use serde_json::json;

use super::rig::{MAPS, Rig, WIDGETS, maps, widgets};
use super::server::{Fault, ScriptedRequest};

#[tokio::test]
async fn f1_a_watch_that_expired_inside_the_stream_is_listed_again() {
    let mut rig = Rig::new();
    rig.watch_maps().await;
    rig.server.world().put_silently(MAPS, "missed", "1");
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    rig.server.world().send(MAPS, &expired);
    rig.until("found by a list", |rig| rig.knows(&maps(), "missed")).await;
}

#[tokio::test]
async fn f1_a_watch_that_expires_at_its_start_again_and_again_is_listed_each_time() {
    let mut rig = Rig::new();
    rig.server.fail(ScriptedRequest::Watch, &[Fault::Refused(410); 5]);
    rig.ensure([&maps()]);
    rig.until("listed", |rig| rig.times("listed") == 3).await;
    rig.server.world().put_silently(MAPS, "missed", "1");
    rig.until("found by a list", |rig| rig.knows(&maps(), "missed")).await;
    rig.until("watched at last", |rig| rig.server.world().watched(MAPS)).await;
    assert_eq!(rig.server.asked(ScriptedRequest::List), 6, "one list for each refusal, and not more");
}

#[tokio::test]
async fn a_server_that_refuses_streaming_lists_is_listed_in_pages_and_not_asked_again() {
    let mut rig = Rig::new();
    rig.server.world().minor = 34;
    rig.server.fail(ScriptedRequest::Stream, &[Fault::Refused(422)]);
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    assert!(rig.knows(&maps(), "settings"));
    rig.watches.relist_all();
    rig.until("listed twice", |rig| rig.times("listed") == 2).await;
    assert_eq!((rig.server.asked(ScriptedRequest::Stream), rig.server.asked(ScriptedRequest::List)), (1, 2));
}

#[tokio::test]
async fn an_error_in_the_stream_is_not_its_end() {
    let mut rig = Rig::new();
    rig.watch_maps().await;
    for _ in 0..2 {
        let error = json!({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}});
        rig.server.world().send(MAPS, &error);
        rig.until("closed", |rig| !rig.server.world().watched(MAPS)).await;
        rig.until("watch is working again", |rig| rig.server.world().watched(MAPS)).await;
    }
    rig.server.world().send(MAPS, &json!("not an event"));
    rig.server.world().put(MAPS, "settings", "1");
    rig.until("seen", |rig| rig.knows(&maps(), "settings")).await;
    assert_eq!(rig.times("listed"), 1, "resumed from the last version");
}

/// A webhook that converts the objects of the kind may fail for long, while everything else works.
#[tokio::test]
async fn j4_objects_of_a_watch_that_fails_for_long_count_as_unobserved_until_they_are_listed() {
    let mut rig = Rig::new();
    rig.watch_maps().await;
    rig.server.fail(ScriptedRequest::Watch, &[Fault::Refused(500); 3]);
    rig.server.fail(ScriptedRequest::List, &[Fault::Refused(500); 8]);
    let error = json!({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "conversion"}});
    rig.server.world().send(MAPS, &error);
    rig.until("unobserved", |rig| !rig.synced(&maps())).await;
    rig.until("listed again", |rig| rig.synced(&maps())).await;
    let unwatchable = rig.changes_seen.iter().filter(|line| line.starts_with("unwatchable")).count();
    assert_eq!(unwatchable, 1, "reported once: {:?}", rig.changes_seen);
}

#[tokio::test]
async fn a_watch_that_cannot_be_resumed_starts_over_from_a_list() {
    let mut rig = Rig::new();
    rig.watch_maps().await;
    rig.server.fail(ScriptedRequest::Watch, &[Fault::Refused(500); 3]);
    rig.server.world().put_silently(MAPS, "missed", "1");
    rig.server.world().hang_up();
    rig.until("found by a list", |rig| rig.knows(&maps(), "missed")).await;
}

#[tokio::test]
async fn f2_losing_the_label_is_reported_as_gone_with_its_uid() {
    let mut rig = Rig::new();
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    // The server sends DELETED for an object that still exists but is no longer selected.
    rig.server.world().delete(MAPS, "settings");
    rig.until("gone", |rig| rig.changes_seen.contains(&"gone settings 1".to_owned())).await;
    assert!(!rig.knows(&maps(), "settings"));
}

#[tokio::test]
async fn a_repeated_or_late_delete_is_ignored() {
    let mut rig = Rig::new();
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    let first = rig.server.world().delete(MAPS, "settings");
    rig.server.world().put(MAPS, "settings", "2");
    rig.server.world().happened(MAPS, "DELETED", first.clone());
    rig.server.world().happened(MAPS, "DELETED", first);
    rig.server.world().put(MAPS, "last", "3");
    rig.until("the last", |rig| rig.knows(&maps(), "last")).await;
    assert_eq!(rig.uid(&maps(), "settings").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_kind_that_is_no_longer_served_is_empty_and_comes_back_by_itself() {
    let mut rig = Rig::new();
    let kind = widgets("v1");
    rig.server.world().put_silently(WIDGETS, "gear", "1");
    rig.ensure([&kind]);
    rig.until("known", |rig| rig.synced(&kind) && rig.knows(&kind, "gear")).await;

    rig.server.world().unserved.push(WIDGETS.into());
    rig.server.world().delete_silently(WIDGETS, "gear");
    rig.server.world().hang_up();
    rig.until("unserved", |rig| rig.times("unserved") == 1).await;
    assert!(rig.synced(&kind) && !rig.knows(&kind, "gear"), "its objects are known to be absent");

    rig.server.world().unserved.clear();
    rig.server.world().put_silently(WIDGETS, "wheel", "2");
    rig.until("back", |rig| rig.knows(&kind, "wheel")).await;
    assert_eq!(rig.times("unserved"), 1, "reported once");
}

#[tokio::test]
async fn a_404_is_not_final_while_discovery_still_lists_the_kind() {
    let mut rig = Rig::new();
    let kind = widgets("v1");
    rig.server.world().put_silently(WIDGETS, "gear", "1");
    rig.server.world().serve_widgets(&["v1"]);
    rig.ensure([&kind]);
    rig.until("known", |rig| rig.synced(&kind)).await;
    rig.server.fail(ScriptedRequest::Watch, &[Fault::Refused(404)]);
    rig.server.fail(ScriptedRequest::List, &[Fault::Refused(404); 3]);
    rig.server.world().hang_up();
    rig.until("listed again", |rig| rig.times("listed") == 2).await;
    assert_eq!(rig.times("unserved"), 0);
    assert!(rig.knows(&kind, "gear"));
}

#[tokio::test]
async fn a_kind_that_moved_to_another_version_is_followed_there() {
    let mut rig = Rig::new();
    rig.server.world().unserved.push("/apis/shop.example/v1beta1/widgets".into());
    rig.server.world().serve_widgets(&["v1"]);
    rig.server.world().put_silently(WIDGETS, "gear", "1");
    let recorded = widgets("v1beta1");
    rig.ensure([&recorded]);
    rig.until("found", |rig| rig.synced(&recorded) && rig.knows(&recorded, "gear")).await;
    assert_eq!(rig.times("unserved"), 0);
}

#[tokio::test]
async fn a_malformed_object_does_not_hide_others() {
    let mut rig = Rig::new();
    for (name, malformed) in [
        (
            "b",
            json!({"metadata": {"name": "b", "namespace": "shop", "uid": "2", "resourceVersion": "7",
            "labels": ["not", "a", "map"], "annotations": {"n": 1}, "creationTimestamp": "yesterday",
            "finalizers": null, "managedFields": null, "generation": "one"}, "spec": 3, "status": "fine"}),
        ),
        ("c", json!({"metadata": {"labels": {}}})),
    ] {
        rig.server.world().put_raw(MAPS, name, malformed);
    }
    rig.server.world().put_silently(MAPS, "a", "1");
    rig.server.world().put_silently(MAPS, "d", "4");
    rig.watch_maps().await;
    assert!(["a", "b", "d"].iter().all(|name| rig.knows(&maps(), name)));
}

#[tokio::test]
async fn f1_a_missed_event_is_found_by_a_new_list() {
    let mut rig = Rig::new();
    rig.server.world().put_silently(MAPS, "deleted", "1");
    rig.watch_maps().await;
    rig.server.world().put_silently(MAPS, "created", "2");
    rig.server.world().delete_silently(MAPS, "deleted");
    rig.watches.relist_all();
    rig.until("found", |rig| rig.knows(&maps(), "created") && !rig.knows(&maps(), "deleted")).await;
    rig.until("watched again", |rig| rig.server.world().watched(MAPS)).await;
    rig.server.world().put(MAPS, "later", "3");
    rig.until("later changes seen", |rig| rig.knows(&maps(), "later")).await;
}

#[tokio::test]
async fn e4_a_list_that_fails_between_pages_never_counts_as_complete() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c", "d"] {
        rig.server.world().put_silently(MAPS, name, name);
    }
    rig.watch_maps().await;
    // The second page fails repeatedly.
    rig.server.world().page = 2;
    for _ in 0..4 {
        rig.server.fail_second_page();
    }
    rig.watches.relist_all();
    rig.until("begun four times", |rig| rig.times("listing") >= 4).await;
    assert_eq!(rig.times("listed"), 1);
    assert!(["a", "b", "c", "d"].iter().all(|name| rig.knows(&maps(), name)), "no object counts as gone");
    rig.until("complete at last", |rig| rig.times("listed") == 2).await;
}

#[tokio::test]
async fn a_first_list_that_fails_between_pages_is_not_synced() {
    let mut rig = Rig::new();
    rig.server.world().page = 1;
    rig.server.world().put_silently(MAPS, "a", "1");
    rig.server.world().put_silently(MAPS, "b", "2");
    rig.server.fail_second_page();
    rig.ensure([&maps()]);
    rig.until("begun again", |rig| rig.times("listing") == 2).await;
    assert!(!rig.synced(&maps()));
    rig.until("complete", |rig| rig.synced(&maps()) && rig.knows(&maps(), "b")).await;
}

#[tokio::test]
async fn a_frozen_connection_is_noticed_and_replaced() {
    let mut rig = Rig::new();
    rig.server.fail(ScriptedRequest::Watch, &[Fault::Frozen]);
    rig.ensure([&maps()]);
    rig.until("frozen", |rig| rig.server.asked(ScriptedRequest::Watch) == 1).await;
    rig.server.world().put(MAPS, "settings", "1");
    rig.until("seen on another connection", |rig| rig.knows(&maps(), "settings")).await;
    rig.server.fail(ScriptedRequest::List, &[Fault::Frozen]);
    rig.watches.relist_all();
    rig.until("listed again", |rig| rig.times("listed") == 2).await;
}

#[tokio::test]
async fn f1_the_older_state_of_a_restored_etcd_is_accepted() {
    let mut rig = Rig::new();
    rig.server.world().put_silently(MAPS, "settings", "1");
    rig.watch_maps().await;
    let known = rig.version(&maps(), "settings").unwrap();
    let older = json!({"metadata": {
        "name": "settings", "namespace": "shop", "uid": "1", "resourceVersion": (known - 50).to_string(),
    }});
    rig.server.world().put_raw(MAPS, "settings", older);
    rig.watches.relist_all();
    rig.until("accepted", |rig| rig.version(&maps(), "settings") == Some(known - 50)).await;
}

//! What is deleted and what is kept: prune, removal, namespaces, finalizers, and inputs that must never delete anything.

use brokkr_api::report::Transition;
use brokkr_sim::objects::{DEFINITION, Item, key};
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;

const SHOP: &str = "/Namespace//shop";
const WEB: &str = "apps/Deployment/shop/web";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const THEIRS: &str = "/ConfigMap/shop/theirs";
const SMALL: &str = "example.com/Widget/shop/small";

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item::new(name, 1)).collect()
}

#[test]
fn b5_prune_waits_for_a_complete_apply_and_then_deletes_unwanted_objects() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS, WEB]));
    scene.deliver(&[Item::new(SHOP, 1), Item { broken: true, ..Item::new("/ConfigMap/shop/new", 1) }]);
    assert!(scene.object(WEB).is_some(), "not everything was applied, so nothing is deleted");
    scene.deliver(&items(&[SHOP]));
    assert_eq!(scene.names(), [SHOP]);
}

#[test]
fn b5_an_object_kept_by_its_annotation_is_released_and_not_deleted() {
    let mut scene = Scene::with(&[Item::new(SHOP, 1), Item { keep: true, ..Item::new(SETTINGS, 1) }]);
    scene.deliver(&items(&[SHOP]));
    assert_eq!(scene.object(SETTINGS).unwrap().marks.agent, None, "no longer owned");
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    scene.meddle(SETTINGS, &Meddling::Keep);
    scene.settle();
    scene.delete();
    assert!(scene.object(SETTINGS).is_some() && scene.object(SHOP).is_some(), "its namespace stays too");
}

#[test]
fn b5_a_mass_prune_waits_for_approval_and_continues_with_it() {
    let names: Vec<String> = (0..80).map(|number| format!("/ConfigMap/default/c{number}")).collect();
    let all: Vec<Item> = names.iter().map(|name| Item::new(name, 1)).collect();
    let mut scene = Scene::with(&all);
    scene.deliver(&all[..10]);
    assert_eq!(scene.names().len(), 80);
    assert_eq!(scene.reports(Transition::Blocked).len(), 1);
    let (stack, now) = (scene.stack, scene.world.now());
    scene.world.broker.approve(stack, 70, now);
    scene.settle();
    assert_eq!(scene.names().len(), 10);
}

#[test]
fn b6_a_child_of_a_foreign_controller_is_skipped_by_prune() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS, WEB]));
    let owner = key("/Namespace//default");
    scene.world.server.objects.get_mut(&key(SETTINGS)).unwrap().owner = Some(owner);
    scene.world.break_watches();
    scene.deliver(&items(&[SHOP]));
    assert_eq!(scene.names(), [SETTINGS, SHOP]);
}

#[test]
fn c5_an_object_that_was_only_intended_is_not_deleted() {
    let mut scene = Scene::new();
    scene.meddle(SHOP, &Meddling::Create);
    scene.meddle(SETTINGS, &Meddling::Create);
    let before = scene.object(SETTINGS).cloned();
    let broken = Item { broken: true, ..Item::new("/ConfigMap/shop/new", 1) };
    scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 1), broken]);
    scene.deliver(&items(&[SHOP]));
    assert_eq!(scene.object(SETTINGS).cloned(), before);
}

#[test]
fn c6_an_adopted_namespace_is_released_and_a_created_one_with_foreign_content_is_left_and_named() {
    for adopted in [true, false] {
        let mut scene = Scene::new();
        if adopted {
            scene.meddle(SHOP, &Meddling::Create);
        }
        scene.deliver(&items(&[SHOP, SETTINGS]));
        scene.meddle(THEIRS, &Meddling::Create);
        scene.delete();
        assert_eq!(scene.names(), [THEIRS, SHOP]);
        assert_eq!(scene.object(SHOP).unwrap().marks.agent, None, "no longer marked as ours");
        let reported = scene.reports(Transition::Removed);
        assert!(reported[0].message.to_string().contains("Namespace shop"), "{}", reported[0].message);
        assert_eq!(reported[0].message.to_string().contains("theirs"), !adopted);
    }
}

#[test]
fn c6_a_definition_is_deleted_only_when_nothing_of_its_kind_is_left() {
    let mut scene = Scene::with(&items(&[DEFINITION, SHOP, SMALL]));
    scene.meddle("example.com/Widget/default/theirs", &Meddling::Create);
    scene.deliver(&items(&[SHOP]));
    assert!(scene.object(DEFINITION).is_some() && scene.object(SMALL).is_none());
    let mut scene = Scene::with(&items(&[DEFINITION, SHOP, SMALL]));
    scene.delete();
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[test]
fn e2_a_finalizer_that_blocks_is_named_and_the_removal_is_reported_only_when_all_is_gone() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    scene.world.server.finalizers_stick = true;
    scene.meddle(SETTINGS, &Meddling::Hold);
    scene.delete();
    let blocked = scene.reports(Transition::Blocked);
    assert!(blocked[0].message.to_string().contains("example.com/hold"), "{}", blocked[0].message);
    assert!(scene.reports(Transition::Removed).is_empty() && scene.object(SHOP).is_some());
    scene.meddle(SETTINGS, &Meddling::LetGo);
    scene.settle();
    assert_eq!(scene.reports(Transition::Removed).len(), 1);
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[test]
fn e2_the_record_of_a_removed_stack_stays_until_the_broker_knows() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    scene.world.broker.delete(scene.stack);
    scene.world.go_on(1).unwrap();
    scene.world.broker.away = true;
    scene.settle();
    assert_eq!(scene.names(), [] as [&str; 0]);
    assert!(scene.record().is_some(), "otherwise a crash now would lose the report");
    scene.world.crash();
    scene.world.broker.away = false;
    scene.settle();
    assert!(scene.record().is_none());
    assert_eq!(scene.reports(Transition::Removed).len(), 1);
}

#[test]
fn e3_a_removal_that_is_cancelled_half_way_is_reversed() {
    for turns in [3, 12, 25, 40] {
        let mut scene = Scene::with(&items(&[SHOP, SETTINGS, WEB]));
        scene.world.broker.target(scene.stack, false);
        scene.world.go_on(turns).unwrap();
        scene.world.broker.target(scene.stack, true);
        scene.settle();
        assert_eq!(scene.names(), [SETTINGS, SHOP, WEB], "after {turns} turns");
        assert_eq!(scene.record().unwrap().removal, None);
    }
}

#[test]
fn e4_an_answer_that_mentions_nothing_deletes_nothing() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let before = scene.world.server.objects.clone();
    scene.set_targets(Vec::new());
    scene.settle();
    scene.world.crash();
    scene.world.broker.changed = false;
    scene.set_targets(Vec::new());
    scene.settle();
    assert_eq!(scene.world.server.objects, before);
}

#[test]
fn e5_a_record_deleted_by_hand_deletes_no_resource_and_is_recreated() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let uid = scene.object(SETTINGS).unwrap().uid.clone();
    scene.world.records.drop_record(scene.stack);
    scene.world.crash();
    scene.settle();
    assert_eq!(scene.object(SETTINGS).unwrap().uid, uid);
    assert!(scene.record().is_some_and(|record| record.inventory.len() == 2));
}

#[test]
fn s2_a_target_older_than_the_record_is_refused() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let older = scene.world.broker.envelope();
    scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
    let before = scene.world.server.objects.clone();
    scene.world.crash();
    scene.world.broker.changed = false;
    scene.set_targets(older);
    scene.settle();
    assert_eq!(scene.world.server.objects, before);
}

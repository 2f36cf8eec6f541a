//! What the agent says is true: receipts name only what is gone, and a stack that cannot be observed is not healthy.

use brokkr_agent::observe::Change;
use brokkr_agent::resource::KindName;
use brokkr_api::report::Transition;
use brokkr_sim::end::check_truth;
use brokkr_sim::objects::{DEFINITION, Item, key};
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const NOTES: &str = "/ConfigMap/shop/notes";
const SMALL: &str = "example.com/Widget/shop/small";

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item::new(name, 1)).collect()
}

fn delivered(items: &[Item]) -> Scene {
    let mut scene = Scene::strict();
    scene.deliver(items);
    scene
}

#[test]
fn j3_a_version_that_is_no_longer_served_is_not_taken_for_a_deletion() {
    let mut scene = Scene::strict();
    scene.meddle(DEFINITION, &Meddling::Create);
    scene.meddle(DEFINITION, &Meddling::ServeBeta);
    scene.settle();
    scene.deliver(&[Item::new(SHOP, 1), Item { beta: true, ..Item::new(SMALL, 1) }]);
    assert!(scene.object(SMALL).is_some());
    scene.meddle(DEFINITION, &Meddling::DropBeta);
    scene.settle();
    scene.delete();
    let removed = scene.reports(Transition::Removed);
    assert!(scene.object(SMALL).is_none() || removed.is_empty(), "{removed:#?}");
}

/// A list from an older state of the cluster shows an object of an earlier stack under the same name.
#[test]
fn j3_a_list_that_is_out_of_date_is_no_proof_that_an_object_is_gone() {
    let mut scene = delivered(&items(&[SHOP, SETTINGS]));
    let mut seen = scene.world.server.seen(&key(SETTINGS)).unwrap();
    (seen.uid, seen.stack) = ("an-earlier-object".into(), Some("an-earlier-stack".into()));
    seen.version -= 1;
    scene.world.run.state.on_change(Change::Present(key(SETTINGS), Box::new(seen)));
    scene.delete();
    assert_eq!(scene.names(), Vec::<String>::new(), "the receipt says that all objects are gone");
    assert_eq!(scene.reports(Transition::Removed).len(), 1);
}

#[test]
fn j3_a_receipt_does_not_name_an_object_that_its_owner_keeps() {
    let mut scene = Scene::strict();
    scene.meddle(SHOP, &Meddling::Create);
    scene.deliver(&items(&[SHOP, SETTINGS, NOTES]));
    scene.world.server.objects.get_mut(&key(SETTINGS)).unwrap().owner = Some(key("/Namespace//default"));
    scene.world.break_watches();
    scene.settle();
    scene.delete();
    assert!(scene.object(SETTINGS).is_some() && scene.object(NOTES).is_none());
    assert_eq!(scene.reports(Transition::Removed).len(), 1);
}

#[test]
fn j3_a_receipt_does_not_name_an_object_that_was_only_to_be_adopted() {
    let mut scene = Scene::strict();
    scene.meddle(SHOP, &Meddling::Create);
    scene.meddle(SETTINGS, &Meddling::Create);
    let broken = Item { broken: true, ..Item::new(NOTES, 1) };
    scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 1), broken]);
    scene.delete();
    assert!(scene.object(SETTINGS).is_some());
    assert_eq!(scene.reports(Transition::Removed).len(), 1);
}

#[test]
fn j4_a_stack_with_a_refused_watch_is_not_called_healthy() {
    let mut scene = delivered(&items(&[SHOP, SETTINGS]));
    assert_eq!(scene.reports(Transition::Healthy).len(), 1);
    scene.world.deny_watch(&KindName::of(&key(SETTINGS)));
    scene.settle();
    check_truth(&scene.world).unwrap();
    scene.world.heal();
    scene.settle();
    assert_eq!(scene.reports(Transition::Healthy).len(), 2, "and it is healthy again afterwards");
}

#[test]
fn j4_a_stack_without_a_writable_record_is_not_called_healthy() {
    let mut scene = delivered(&items(&[SHOP, SETTINGS]));
    scene.world.records.refuses = true;
    scene.meddle(SETTINGS, &Meddling::Change);
    scene.settle();
    check_truth(&scene.world).unwrap();
}

#[test]
fn d6_an_agent_whose_stored_state_was_deleted_writes_again() {
    let mut scene = delivered(&items(&[SHOP, SETTINGS]));
    for _ in 0..3 {
        scene.world.restart(SignedDuration::ZERO);
        scene.settle();
    }
    scene.world.memory.count = None;
    scene.world.restart(SignedDuration::ZERO);
    let sequence = scene.deliver(&items(&[SHOP, NOTES]));
    assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
}

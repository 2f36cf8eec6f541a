//! Maintenance windows and freezes (H8): an agent begins nothing while it must not, goes on with what it has begun, and repairs
//! drift all the time.

use brokkr_api::windows::{Freeze, Schedule};
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use brokkr_sim::world::World;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const FROZEN_FOR: SignedDuration = SignedDuration::from_hours(8);

fn version(number: u8) -> [Item; 2] {
    [Item::new(SHOP, 1), Item::new(SETTINGS, number)]
}

/// Freezes the stack from now on.
fn freeze(scene: &mut Scene) {
    let from = scene.world.now();
    let freeze = Freeze { from, until: from + FROZEN_FOR, reason: String::new() };
    let schedule = Schedule { window: None, freezes: vec![freeze] };
    scene.world.broker.schedule(scene.stack, Some(schedule));
}

/// Passes the end of the freeze. Nothing else wakes the agent.
fn thaw(scene: &mut Scene) {
    let later = scene.world.now() + FROZEN_FOR;
    scene.world.pass_until(later);
    scene.settle();
}

#[test]
fn h8_in_a_freeze_nothing_begins_and_drift_is_repaired() {
    for crash in [false, true] {
        let mut scene = Scene::with(&version(1));
        let (first, before) = (scene.record().map(|record| record.sequence), scene.object(SETTINGS).cloned());
        freeze(&mut scene);
        let second = scene.submit(&version(2));
        scene.settle();
        if crash {
            scene.world.crash();
        }
        scene.meddle(SETTINGS, &Meddling::Delete);
        scene.settle();
        let applied = |scene: &Scene| scene.object(SETTINGS).map(|object| object.applied.clone());
        assert_eq!(applied(&scene), before.map(|before| before.applied), "the first version is repaired");
        assert_eq!(scene.record().map(|record| record.sequence), first);
        thaw(&mut scene);
        assert_eq!(scene.record().map(|record| record.sequence), Some(second), "begun when the freeze ended");
    }
}

#[test]
fn h8_a_version_that_is_begun_is_finished_and_one_that_is_not_waits() {
    let mut ends = [0, 0];
    for turns in 0..60 {
        let mut scene = Scene::with(&version(1));
        let second = scene.submit(&version(2));
        scene.world.go_on(turns).expect("no violation");
        let is_begun = |scene: &Scene| scene.record().is_some_and(|record| record.sequence == second);
        let begun = is_begun(&scene);
        freeze(&mut scene);
        scene.settle();
        let finished = scene.record().is_some_and(|record| record.applied == Some(second));
        // A write of the record may be under way when the freeze begins.
        assert!(finished || !begun, "begun and not finished after {turns} turns");
        assert_eq!(finished, is_begun(&scene), "after {turns} turns");
        ends[usize::from(finished)] += 1;
        thaw(&mut scene);
        assert!(is_begun(&scene), "after {turns} turns");
    }
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
}

#[test]
fn h8_first_versions_and_removals_wait_too() {
    let mut scene = Scene::new();
    let first = scene.submit(&version(1));
    freeze(&mut scene);
    scene.settle();
    assert_eq!((scene.names(), scene.record().is_none()), (Vec::new(), true), "not even the first version");
    thaw(&mut scene);
    assert_eq!(scene.record().map(|record| record.sequence), Some(first));
    freeze(&mut scene);
    scene.world.broker.target(scene.stack, false);
    scene.settle();
    assert_eq!(scene.names().len(), 2, "a removal waits");
    thaw(&mut scene);
    assert_eq!((scene.names(), scene.record().is_none()), (Vec::new(), true));
}

/// The stack that gives an object up and the one that takes it over both wait. When they may begin, neither waits for the other.
#[test]
fn h8_an_object_changes_hands_when_the_freeze_ends() {
    let other = World::stack_id(1);
    let mut scene = Scene::with(&version(1));
    let uid = scene.object(SETTINGS).map(|object| object.uid.clone());
    freeze(&mut scene);
    let until = scene.world.now() + FROZEN_FOR;
    let freeze = Freeze { from: scene.world.now(), until, reason: String::new() };
    let taken = scene.submit_to(other, &version(1));
    let schedule = Schedule { window: None, freezes: vec![freeze] };
    scene.world.broker.schedule(other, Some(schedule));
    scene.world.broker.target(scene.stack, false);
    scene.settle();
    assert!(scene.world.records.get(other).is_none(), "nothing begins");
    thaw(&mut scene);
    let record = scene.world.records.get(other).map(|record| record.applied);
    assert_eq!(record, Some(Some(taken)), "{:#?}", scene.trace());
    assert!(scene.record().is_none(), "the first stack is removed");
    assert_eq!(scene.object(SETTINGS).map(|object| object.uid.clone()), uid, "it was never deleted");
}

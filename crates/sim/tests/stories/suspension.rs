//! Suspensions (F2): what they cover is neither applied, repaired nor deleted, also after a crash and without the broker; everything
//! else is.

use brokkr_api::SuspensionId;
use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::suspensions::Suspended;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const FLAGS: &str = "/ConfigMap/shop/flags";
/// Long enough that its end is never reached by chance.
const HOURS: u32 = 8;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn version(number: u8) -> [Item; 3] {
    [Item::new(SHOP, 1), Item::new(SETTINGS, number), Item::new(FLAGS, number)]
}

/// Suspends the stack, or an object of it.
fn suspend(scene: &mut Scene, object: Option<&str>) {
    let object = object.map(|object| object.parse().expect("an object"));
    let suspended = Suspended { id: SuspensionId::generate(), object, seconds: HOURS * 3600 };
    scene.world.broker.suspend(scene.stack, vec![suspended]);
    scene.settle();
}

/// Lets hours pass while the agent runs: it counts only time that it has watched.
fn pass(scene: &mut Scene, hours: u32) {
    let end = scene.world.now() + MINUTE * 60 * i32::try_from(hours).expect("few");
    while scene.world.now() < end {
        let next = scene.world.now() + MINUTE;
        scene.world.pass_until(next);
        scene.settle();
    }
}

fn reported(scene: &Scene, transition: &Transition) -> usize {
    scene.world.broker.reports.values().filter(|report| report.transition == *transition).count()
}

#[test]
fn f2_a_suspended_object_stays_deleted_for_its_time_and_the_others_are_repaired() {
    for (crash, away) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut scene = Scene::with(&version(1));
        suspend(&mut scene, Some("ConfigMap/settings"));
        assert_eq!(reported(&scene, &Transition::Suspended), 1);
        scene.world.broker.away = away;
        if crash {
            scene.world.crash();
            scene.settle();
        }
        scene.meddle(SETTINGS, &Meddling::Delete);
        scene.meddle(FLAGS, &Meddling::Delete);
        scene.settle();
        assert!(scene.object(SETTINGS).is_none(), "crash {crash}, away {away}");
        assert!(scene.object(FLAGS).is_some(), "crash {crash}, away {away}");
        pass(&mut scene, HOURS / 2);
        assert!(scene.object(SETTINGS).is_none(), "its time is not over");
        // The simulated agent sometimes sleeps for long, and counts only a part of that time.
        pass(&mut scene, HOURS * 20);
        assert!(scene.object(SETTINGS).is_some(), "crash {crash}, away {away}: {:#?}", scene.trace());
        scene.world.broker.away = false;
        scene.settle();
        assert_eq!(reported(&scene, &Transition::Resumed), 1);
    }
}

#[test]
fn f2_of_a_suspended_stack_no_version_begins_and_nothing_is_removed_until_it_is_resumed() {
    for crash in [false, true] {
        let mut scene = Scene::with(&version(1));
        let first = scene.record().map(|record| record.sequence);
        suspend(&mut scene, None);
        let second = scene.submit(&version(2));
        scene.settle();
        if crash {
            scene.world.crash();
            scene.settle();
        }
        assert_eq!(scene.record().map(|record| record.sequence), first);
        scene.world.broker.suspend(scene.stack, Vec::new());
        scene.settle();
        assert_eq!(scene.record().and_then(|record| record.applied), Some(second));

        suspend(&mut scene, None);
        scene.world.broker.delete(scene.stack);
        scene.settle();
        assert_eq!(scene.names().len(), 3, "a removal waits");
        scene.world.broker.suspend(scene.stack, Vec::new());
        scene.settle();
        assert_eq!((scene.names(), scene.record().is_none()), (Vec::new(), true));
    }
}

#[test]
fn f2_a_version_goes_around_a_suspended_object_and_ends_with_it() {
    let mut scene = Scene::with(&version(1));
    suspend(&mut scene, Some("ConfigMap/settings"));
    let before = scene.object(SETTINGS).cloned();
    let second = scene.submit(&version(2));
    scene.settle();
    assert_eq!(scene.object(SETTINGS).cloned(), before, "left alone");
    assert_ne!(scene.object(FLAGS).map(|object| object.applied.clone()), before.map(|before| before.applied));
    assert_ne!(scene.record().and_then(|record| record.applied), Some(second), "not complete");
    scene.world.broker.suspend(scene.stack, Vec::new());
    scene.settle();
    assert_eq!(scene.record().and_then(|record| record.applied), Some(second), "{:#?}", scene.trace());
}

/// A suspension may begin while requests are under way. These end; nothing else begins.
#[test]
fn f2_a_suspension_at_any_point_of_a_delivery_ends_with_a_complete_one() {
    for turns in 0..60 {
        let mut scene = Scene::with(&version(1));
        let second = scene.submit(&version(2));
        scene.world.go_on(turns).expect("no violation");
        suspend(&mut scene, None);
        scene.meddle(FLAGS, &Meddling::Delete);
        scene.settle();
        assert!(scene.object(FLAGS).is_none(), "after {turns} turns");
        scene.world.broker.suspend(scene.stack, Vec::new());
        scene.settle();
        assert_eq!(scene.record().and_then(|record| record.applied), Some(second), "after {turns} turns");
        assert!(scene.object(FLAGS).is_some(), "after {turns} turns");
    }
}

#[test]
fn f2_j5_a_wave_waits_for_a_suspended_object_without_a_failure() {
    let version = |number| {
        let mut items = version(number);
        items[2].wave = 1;
        items
    };
    let mut scene = Scene::with(&version(1));
    scene.wait_for_waves(300);
    suspend(&mut scene, Some("ConfigMap/settings"));
    let before = scene.object(FLAGS).cloned();
    let second = scene.submit(&version(2));
    pass(&mut scene, 1);
    assert_eq!(scene.object(FLAGS).cloned(), before, "the next wave waits");
    assert_eq!(reported(&scene, &Transition::Failed), 0, "{:#?}", scene.trace());
    let last = scene.world.broker.reports.values().max_by_key(|report| report.at).expect("a report");
    assert_eq!((&last.transition, &last.reason), (&Transition::Blocked, &Reason::Suspended));
    scene.world.broker.suspend(scene.stack, Vec::new());
    scene.settle();
    assert_eq!(scene.record().and_then(|record| record.applied), Some(second), "{:#?}", scene.trace());
}

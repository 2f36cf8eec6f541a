//! What users, administrators and controllers do to a cluster besides changing objects.

use brokkr_api::envelope::Grant;
use brokkr_api::report::Transition;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use brokkr_sim::world::Fault;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const NOTES: &str = "/ConfigMap/default/notes";
const JOB: &str = "batch/Job/shop/migrate";

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item::new(name, 1)).collect()
}

#[test]
fn b8_a_finished_job_that_was_collected_is_not_run_again() {
    let mut scene = Scene::with(&[Item::new(SHOP, 1), Item { ttl: true, ..Item::new(JOB, 1) }]);
    assert!(scene.object(JOB).is_none(), "it has finished and was collected");
    assert!(scene.record().unwrap().inventory.values().any(|entry| entry.completed));
    scene.forget_trace();
    scene.world.restart(SignedDuration::ZERO);
    scene.settle();
    scene.world.check_stable().unwrap();
    assert!(scene.position(&format!("apply {JOB}")).is_none(), "{:#?}", scene.trace());
    scene.deliver(&[Item::new(SHOP, 1), Item::new(JOB, 2)]);
    assert!(scene.object(JOB).is_some(), "new content runs it again");
}

#[test]
fn s12_a_narrowed_grant_freezes_its_stack_until_it_is_widened() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS, NOTES]));
    let narrow = Grant { namespaces: vec!["shop".into()], kinds: vec!["*".into()], account: None };
    scene.world.broker.grant(scene.stack, Some(narrow));
    scene.settle();
    scene.forget_trace();
    scene.meddle(NOTES, &Meddling::Change);
    scene.deliver(&items(&[SHOP]));
    assert!(scene.object(NOTES).is_some() && scene.object(SETTINGS).is_some());
    assert!(scene.trace().iter().all(|line| !line.contains(" apply ") && !line.contains(" delete ")));
    assert!(!scene.reports(Transition::Blocked).is_empty());
    scene.world.broker.grant(scene.stack, None);
    scene.settle();
    assert_eq!(scene.names(), [SHOP]);
}

#[test]
fn b3_an_immutable_object_that_may_be_replaced_is_recreated() {
    let item = |value| Item { immutable: true, replace: true, ..Item::new(SETTINGS, value) };
    let mut scene = Scene::with(&[Item::new(SHOP, 1), item(1)]);
    let uid = scene.object(SETTINGS).unwrap().uid.clone();
    let sequence = scene.deliver(&[Item::new(SHOP, 1), item(2)]);
    assert_ne!(scene.object(SETTINGS).unwrap().uid, uid);
    assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
}

#[test]
fn e5_a_record_deleted_by_hand_is_recreated_by_the_running_agent() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let uid = scene.object(SETTINGS).unwrap().uid.clone();
    scene.world.drop_record(scene.stack);
    scene.settle();
    assert_eq!(scene.object(SETTINGS).unwrap().uid, uid);
    assert!(scene.record().is_some_and(|record| record.inventory.len() == 2));
}

#[test]
fn d6_a_clock_that_differs_from_that_of_the_earlier_run_delays_nothing_for_long() {
    for hours in [-1, 1] {
        let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
        scene.world.restart(SignedDuration::from_hours(hours));
        let began = scene.world.now();
        let sequence = scene.submit(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
        while scene.record().and_then(|record| record.applied) != Some(sequence) {
            scene.world.go_on(1).unwrap();
            assert!(scene.world.now() < began + SignedDuration::from_secs(60), "{:#?}", scene.trace());
        }
    }
}

#[test]
fn s2_a_write_that_outlives_its_run_does_not_undo_a_newer_version() {
    for at in 0..30 {
        let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
        scene.world.server.fence = Some(scene.world.agent);
        scene.world.fault = Some(Fault::Outlived(scene.world.made + at));
        scene.submit(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
        let turns = 200;
        let died = (0..turns).any(|_| {
            scene.world.go_on(1).unwrap();
            scene.world.fault.is_none()
        });
        assert!(died || at > 4, "the delivery has at least five requests");
        let sequence = scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 0)]);
        assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
        let applied = scene.object(SETTINGS).unwrap().applied.as_ref().map(|applied| applied.body.clone());
        assert_eq!(applied, Some(Item::new(SETTINGS, 0).desired().body.clone()), "{:#?}", scene.trace());
    }
}

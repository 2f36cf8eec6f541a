//! One decision per test: order, validation, adoption, refusal.

use brokkr_api::report::Transition;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use brokkr_sim::world::{Fault, World};
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const WEB: &str = "apps/Deployment/shop/web";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const NOTES: &str = "/ConfigMap/shop/notes";

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item::new(name, 1)).collect()
}

#[test]
fn b1_prerequisites_come_first_and_configuration_before_workloads() {
    let scene = Scene::with(&items(&[WEB, SETTINGS, SHOP]));
    let order = [
        "hold ",
        "write-record ",
        "apply /Namespace//shop",
        "dry-run apps/Deployment/shop/web",
        "apply /ConfigMap/shop/settings",
        "apply apps/Deployment/shop/web",
    ];
    let positions: Vec<_> = order.iter().map(|request| scene.position(request)).collect();
    assert!(
        positions.iter().all(Option::is_some) && positions.is_sorted(),
        "{positions:?} {:#?}",
        scene.trace()
    );
}

#[test]
fn b2_a_permanent_error_of_validation_stops_before_the_first_real_write_of_the_rest() {
    let broken = |name: &str| Item { broken: true, ..Item::new(name, 1) };
    let mut scene = Scene::new();
    scene.deliver(&[Item::new(SHOP, 1), Item::new(WEB, 1), broken(SETTINGS), broken(NOTES)]);
    assert!(scene.names().iter().all(|name| name == SHOP), "{:?}", scene.names());
    let reported = scene.reports(Transition::Failed);
    assert_eq!(reported.len(), 1, "once, not every cycle");
    assert_eq!(reported[0].objects.len(), 2, "all errors are collected: {:?}", reported[0].objects);
    assert!(scene.reports(Transition::Applied).is_empty());
}

#[test]
fn f2_an_applied_object_is_repaired_at_once_although_its_newer_content_is_refused() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    scene.deliver(&[Item::new(SHOP, 1), Item { broken: true, ..Item::new(SETTINGS, 2) }]);
    assert_eq!(scene.reports(Transition::Failed).len(), 1);
    let refused = scene.world.now();
    scene.forget_trace();
    scene.meddle(SETTINGS, &Meddling::Delete);
    while scene.object(SETTINGS).is_none() {
        scene.world.go_on(1).unwrap();
        assert!(
            scene.world.now() < refused + SignedDuration::from_secs(60),
            "repaired only in the next cycle"
        );
    }
    let validations = scene.trace().iter().filter(|line| line.contains(" dry-run ")).count();
    assert_eq!(validations, 0, "the refused content is not retried because of it: {:#?}", scene.trace());
    scene.settle();
    assert_eq!(scene.reports(Transition::Failed).len(), 1, "nor reported again");
}

#[test]
fn b7_the_same_again_with_a_new_sequence_id_changes_no_object_and_keeps_the_stamp() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let (stamp, version) = (scene.record().unwrap().stamp, scene.object(SETTINGS).unwrap().version);
    scene.forget_trace();
    let sequence = scene.deliver(&items(&[SHOP, SETTINGS]));
    assert!(scene.position(&format!("apply {SETTINGS}")).is_some(), "A8: a full reconcile");
    assert_eq!(scene.object(SETTINGS).unwrap().version, version);
    assert_eq!(scene.record().unwrap().stamp, stamp);
    assert_eq!(scene.record().unwrap().applied, Some(sequence));
}

#[test]
fn c1_an_existing_object_is_adopted_and_stays_the_same_object() {
    let mut scene = Scene::new();
    scene.meddle(SHOP, &Meddling::Create);
    scene.meddle(SETTINGS, &Meddling::Create);
    let uid = scene.object(SETTINGS).unwrap().uid.clone();
    scene.deliver(&items(&[SHOP, SETTINGS]));
    let object = scene.object(SETTINGS).unwrap();
    assert_eq!(object.uid, uid);
    assert_eq!(object.marks.stack, Some(scene.stack.to_string()));
}

#[test]
fn c4_an_object_of_another_agent_is_refused_before_anything_is_written() {
    let mut scene = Scene::new();
    scene.meddle(SHOP, &Meddling::Create);
    scene.meddle(SETTINGS, &Meddling::CreateForAnother);
    let before = scene.world.server.objects.clone();
    scene.deliver(&items(&[SHOP, SETTINGS, NOTES]));
    assert_eq!(scene.world.server.objects, before);
    assert_eq!(scene.reports(Transition::Failed).len(), 1);
}

#[test]
fn c4_an_object_that_another_stack_wants_is_refused_and_stays_there() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let other = World::stack_id(5);
    scene.submit_to(other, &[Item::new(SETTINGS, 2)]);
    scene.settle();
    let object = scene.object(SETTINGS).unwrap();
    assert_eq!(object.marks.stack, Some(scene.stack.to_string()));
    let refused = scene.world.broker.reports.values().find(|report| report.stack_id == other);
    assert_eq!(refused.map(|report| report.reason.code()), Some("OwnedByOther"));
}

/// Without pauses, the agent would send requests without end; without a count of attempts, it would never
/// report the failure.
#[test]
fn d2_a_write_that_never_succeeds_is_retried_with_growing_pauses_and_reported() {
    let mut scene = Scene::new();
    scene.submit(&items(&["/ConfigMap/nowhere/settings"]));
    scene.settle();
    let tries = scene.trace().iter().filter(|line| line.contains(" dry-run ")).count();
    assert!((2..30).contains(&tries), "{tries} tries: {:#?}", scene.trace());
    let reported = scene.reports(Transition::Failed);
    assert_eq!(reported.iter().map(|report| report.reason.code()).collect::<Vec<_>>(), ["NamespaceNotFound"]);
    scene.meddle("/Namespace//nowhere", &Meddling::Create);
    scene.settle();
    assert!(scene.object("/ConfigMap/nowhere/settings").is_some(), "retried when it exists");
}

#[test]
fn d2_a_server_that_refuses_writes_gets_few_retries() {
    let mut scene = Scene::new();
    scene.world.server.ailing = true;
    scene.submit(&items(&[SHOP]));
    scene.world.go_on(3_000).unwrap();
    let tries = scene.trace().iter().filter(|line| line.contains(" apply ")).count();
    assert!((2..60).contains(&tries), "{tries} tries in {} s", 3_000 * 7 / 10);
    assert_eq!(scene.reports(Transition::Failed).len(), 1);
    scene.world.server.ailing = false;
    scene.settle();
    assert_eq!(scene.reports(Transition::Applied).len(), 1);
}

#[test]
fn d1_objects_of_a_failed_delivery_are_removed_unless_they_are_in_use() {
    for used in [false, true] {
        let mut scene = Scene::new();
        scene.submit(&[Item::new(SHOP, 1), Item { broken: true, ..Item::new(SETTINGS, 1) }]);
        while scene.object(SHOP).is_none() {
            scene.world.go_on(1).unwrap();
        }
        if used {
            scene.meddle(NOTES, &Meddling::Create);
        }
        scene.world.go_on(100).unwrap();
        assert_eq!(scene.position(&format!("delete {SHOP}")).is_none(), used, "{:#?}", scene.trace());
        assert_eq!(scene.object(SHOP).is_some(), used);
        assert_eq!(scene.object(NOTES).is_some(), used);
        assert_eq!(scene.reports(Transition::Failed).len(), 1);
    }
}

#[test]
fn d2_a_transient_error_of_the_first_write_is_retried_within_a_second_and_not_reported() {
    let mut scene = Scene::new();
    let began = scene.world.now();
    scene.submit(&items(&[SHOP, SETTINGS]));
    // The first apply after the namespace. Before it: hold, fetch, read, permission check, record, namespace,
    // dry run.
    scene.world.fault = Some(Fault::LostAnswer(7));
    scene.settle();
    let lost = format!("apply {SETTINGS} → Transient ApiServerUnreachable");
    assert!(scene.trace().iter().any(|line| line.ends_with(&lost)), "{:#?}", scene.trace());
    assert!(scene.reports(Transition::Failed).is_empty(), "{:#?}", scene.trace());
    let applied = scene.reports(Transition::Applied)[0].at;
    assert!(applied.duration_since(began) < SignedDuration::from_secs(3), "{:#?}", scene.trace());
}

#[test]
fn d5_one_broken_stack_does_not_keep_another_from_converging() {
    let mut scene = Scene::new();
    let other = World::stack_id(5);
    scene.submit(&[Item { broken: true, ..Item::new("/ConfigMap/default/one", 1) }]);
    scene.submit_to(other, &items(&["/ConfigMap/default/two"]));
    scene.settle();
    assert_eq!(scene.reports(Transition::Failed).len(), 1);
    assert!(scene.object("/ConfigMap/default/two").is_some());
}

#[test]
fn f2_an_object_repaired_before_the_next_content_arrives_still_gets_that_content() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    scene.world.broker.withholds = true;
    let sequence = scene.submit(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
    scene.settle();
    scene.forget_trace();
    scene.meddle(SETTINGS, &Meddling::Change);
    scene.settle();
    assert!(scene.position(&format!("apply {SETTINGS}")).is_some(), "repaired: {:#?}", scene.trace());
    scene.world.broker.withholds = false;
    scene.settle();
    assert_eq!(scene.record().unwrap().applied, Some(sequence));
    let applied = scene.object(SETTINGS).unwrap().applied.as_ref().map(|applied| applied.body.clone());
    assert_eq!(applied, Some(Item::new(SETTINGS, 2).desired().body.clone()));
}

#[test]
fn l1_a_settled_stack_makes_no_requests() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS, WEB]));
    scene.forget_trace();
    scene.world.check_stable().unwrap();
    assert_eq!(scene.trace(), [] as [String; 0]);
}

#[test]
fn s2_the_record_of_a_newer_run_wins_over_a_run_that_should_be_dead() {
    let mut scene = Scene::with(&items(&[SHOP, SETTINGS]));
    let zombie = scene.world.run.clone();
    scene.world.crash();
    scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
    let kept = scene.record().unwrap().clone();
    scene.world.run = zombie;
    let sequence = scene.submit(&items(&[SHOP, NOTES]));
    scene.settle();
    assert_eq!(scene.record().unwrap(), &kept, "the older run changes nothing");
    assert!(scene.object(NOTES).is_none() && scene.object(SETTINGS).is_some());
    assert!(scene.reports(Transition::Applied).iter().all(|report| report.sequence_id != sequence));
}

/// A list that is out of date can name an owner that is gone.
#[test]
fn c4_a_stack_that_was_refused_continues_as_soon_as_the_other_owner_is_gone() {
    let mut scene = Scene::new();
    scene.meddle(SHOP, &Meddling::Create);
    scene.meddle(SETTINGS, &Meddling::CreateForAnother);
    let (agent, key) = (scene.world.agent.to_string(), brokkr_sim::objects::key(SETTINGS));
    let marks = &mut scene.world.server.objects.get_mut(&key).unwrap().marks;
    (marks.agent, marks.stack, marks.id) =
        (Some(agent), Some(World::stack_id(2).to_string()), Some(key.to_string()));
    scene.deliver(&items(&[SHOP, SETTINGS]));
    assert_eq!(scene.reports(Transition::Failed).len(), 1, "{:#?}", scene.trace());
    let refused = scene.world.now();
    scene.meddle(SETTINGS, &Meddling::Delete);
    while scene.object(SETTINGS).is_none() {
        scene.world.go_on(1).unwrap();
        assert!(scene.world.now() < refused + SignedDuration::from_secs(60), "only in the next cycle");
    }
}

/// A Deployment that is written before its ConfigMap starts Pods with the old settings, and nothing restarts them.
#[test]
fn j5_an_object_that_is_refused_for_a_moment_delays_those_of_later_ranks() {
    let stack = items(&[SHOP, SETTINGS, NOTES, WEB]);
    let clean = Scene::with(&stack);
    let line = clean.position(&format!("apply {SETTINGS}")).map(|at| clean.trace()[at].clone()).unwrap();
    let number: usize = line.split_whitespace().next().unwrap().parse().unwrap();
    for fault in [Fault::Overload(number), Fault::LostAnswer(number)] {
        let mut scene = Scene::new();
        scene.world.fault = Some(fault);
        scene.deliver(&stack);
        let written = |key: &str| {
            let done = |line: &String| {
                line.contains(&format!(" apply {key} → created"))
                    || line.contains(&format!(" apply {key} → updated"))
            };
            scene.trace().iter().position(done)
        };
        let refused =
            scene.trace().iter().any(|line| line.contains(&format!(" apply {SETTINGS} → Transient")));
        assert!(refused, "{fault:?} {:#?}", scene.trace());
        assert!(written(SETTINGS).is_some() && written(SETTINGS) < written(WEB), "{:#?}", scene.trace());
    }
}

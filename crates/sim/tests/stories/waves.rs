//! Waves that wait (J5), Jobs as steps (A8, B8), and Helm hooks: in order, and once, also with a crash at every step.

use brokkr_api::reason::{Reason, Wave};
use brokkr_api::report::{Report, Transition};
use brokkr_manifest::{Hook, Side};
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use brokkr_sim::world::Fault;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const MIGRATE: &str = "batch/Job/shop/migrate";
const DATABASE: &str = "apps/Deployment/shop/database";
const WEB: &str = "apps/Deployment/shop/web";

/// More requests than any of these deliveries makes.
const STEPS: usize = 40;

/// A migration, and the workload that needs it.
fn version(number: u8) -> Vec<Item> {
    vec![
        Item::new(SHOP, 1),
        Item { ttl: true, ..Item::new(MIGRATE, number) },
        Item { wave: 1, ..Item::new(WEB, number) },
    ]
}

fn waiting() -> Scene {
    let mut scene = Scene::strict();
    scene.submit(&[Item::new(SHOP, 1)]);
    scene.wait_for_waves(300);
    scene.settle();
    scene
}

/// Returns how often the Job has completed with this manifest.
fn runs(scene: &Scene, item: &Item) -> usize {
    let body = item.desired().body.clone();
    scene.world.server.completed_jobs.iter().filter(|(key, ran)| *key == item.key && *ran == body).count()
}

/// Lets time pass while the agent runs.
fn pass(scene: &mut Scene, seconds: i64) {
    let end = scene.world.now() + SignedDuration::from_secs(seconds);
    while scene.world.now() < end {
        scene.world.go_on(1).expect("no violation");
    }
}

fn last_report(scene: &Scene) -> &Report {
    let reports = scene.world.broker.reports.values().filter(|report| report.stack_id == scene.stack);
    reports.max_by_key(|report| report.at).expect("a report")
}

#[test]
fn j5_a8_d6_a_migration_runs_once_before_its_workload_with_a_crash_at_every_step() {
    for fault in [Fault::Crash, Fault::LostAnswer, Fault::Overload] {
        for at in 0..STEPS {
            let mut scene = waiting();
            for number in [1, 2] {
                scene.world.fault = Some(fault(scene.world.made + at));
                scene.deliver(&version(number));
                let job = &version(number)[1];
                let what = format!("{:?}, version {number}: {:#?}", fault(at), scene.trace());
                assert_eq!(runs(&scene, job), 1, "{what}");
                assert!(scene.object(WEB).is_some(), "{what}");
                assert_eq!(scene.reports(Transition::Failed).len(), 0, "{what}");
            }
            // Equal content again, with another crash; its Job is gone by now.
            scene.world.fault = Some(fault(scene.world.made + at));
            let sequence = scene.deliver(&version(2));
            let record = scene.record().expect("a record");
            assert_eq!(record.applied, Some(sequence), "{:?}: {:#?}", fault(at), scene.trace());
            assert_eq!(runs(&scene, &version(2)[1]), 1, "{:?}: {:#?}", fault(at), scene.trace());
        }
    }
}

#[test]
fn a8_a_job_runs_once_for_each_of_its_manifests() {
    let mut scene = waiting();
    for number in [1, 2, 1, 2, 3, 1] {
        scene.deliver(&version(number));
    }
    let counts = [1, 2, 3].map(|number| runs(&scene, &version(number)[1]));
    assert_eq!(counts, [1, 1, 1], "{:#?}", scene.trace());
}

/// A rerun is a version: only what it names runs again, once, also if the agent is restarted.
#[test]
fn a8_a_rerun_runs_the_job_again_once() {
    for at in 0..STEPS {
        for ttl in [true, false] {
            let mut items = version(1);
            items[1].ttl = ttl;
            let mut scene = waiting();
            scene.deliver(&items);
            scene.world.fault = Some(Fault::Crash(scene.world.made + at));
            scene.world.broker.rerun(scene.stack, &["shop/migrate"]).expect("a version");
            scene.settle();
            assert_eq!(runs(&scene, &items[1]), 2, "crash at {at}: {:#?}", scene.trace());
            scene.deliver(&items);
            assert_eq!(runs(&scene, &items[1]), 2, "crash at {at}: {:#?}", scene.trace());
        }
    }
}

#[test]
fn a8_a_rerun_works_without_waves_that_wait() {
    let mut scene = Scene::strict();
    scene.deliver(&version(1));
    scene.world.broker.rerun(scene.stack, &["shop/migrate"]).expect("a version");
    scene.settle();
    assert_eq!(runs(&scene, &version(1)[1]), 2, "{:#?}", scene.trace());
    scene.deliver(&version(1));
    assert_eq!(runs(&scene, &version(1)[1]), 2, "{:#?}", scene.trace());
}

#[test]
fn a8_a_rollback_to_a_version_whose_waves_do_not_wait_does_not_run_its_job_again() {
    for ttl in [false, true] {
        let version = |number| {
            let mut items = version(number);
            (items[1].ttl, items[1].immutable) = (ttl, true);
            items
        };
        let mut scene = Scene::strict();
        scene.deliver(&version(1));
        scene.wait_for_waves(300);
        scene.deliver(&version(2));
        scene.world.broker.wait_for_waves(scene.stack, None);
        let sequence = scene.deliver(&version(1));
        let record = scene.record().expect("a record");
        assert_eq!(record.applied, Some(sequence), "ttl {ttl}: {:#?}", scene.trace());
        let counts = [1, 2].map(|number| runs(&scene, &version(number)[1]));
        assert_eq!(counts, [1, 1], "ttl {ttl}: {:#?}", scene.trace());
    }
}

/// Kubernetes deletes a failed Job at the end of its time to live, too.
#[test]
fn a8_a_failed_job_that_is_gone_does_not_run_again_until_it_is_corrected_or_run_again() {
    for at in 0..STEPS {
        let mut scene = waiting();
        // Longer than the agent takes to see and record the failure.
        scene.world.server.pace = SignedDuration::from_secs(30);
        scene.set_failing(MIGRATE, true);
        scene.world.fault = Some(Fault::Crash(scene.world.made + at));
        scene.submit(&version(1));
        pass(&mut scene, 400);
        scene.world.crash();
        pass(&mut scene, 300);
        let what = format!("crash at {at}: {:#?}", scene.trace());
        assert!(scene.object(MIGRATE).is_none() && scene.object(WEB).is_none(), "{what}");
        assert_eq!(scene.world.server.failed_jobs.len(), 1, "{what}");
        let failed = last_report(&scene);
        assert_eq!(failed.reason, Reason::WaveNotReady { wave: Wave::Number(0) }, "{what}");
        assert_eq!(scene.reports(Transition::Failed).len(), 1, "{what}");
        scene.set_failing(MIGRATE, false);
        let number = if at % 2 == 0 {
            scene.world.broker.rerun(scene.stack, &["shop/migrate"]).expect("a version");
            1
        } else {
            scene.submit(&version(2));
            2
        };
        scene.settle();
        assert_eq!(runs(&scene, &version(number)[1]), 1, "crash at {at}: {:#?}", scene.trace());
        assert!(scene.object(WEB).is_some(), "crash at {at}: {:#?}", scene.trace());
    }
}

fn two_waves(number: u8) -> Vec<Item> {
    vec![
        Item::new(SHOP, 1),
        Item::new(DATABASE, number),
        Item::new(SETTINGS, number),
        Item { wave: 1, ..Item::new(WEB, number) },
    ]
}

#[test]
fn j5_d2_a_wave_that_is_not_ready_holds_back_later_ones_is_reported_and_goes_on_by_itself() {
    for crashes in [false, true] {
        let mut scene = waiting();
        scene.set_ready(DATABASE, false);
        let sequence = scene.submit(&two_waves(1));
        pass(&mut scene, 60);
        assert!(scene.object(WEB).is_none(), "{:#?}", scene.trace());
        let wave = Wave::Number(0);
        let waits = last_report(&scene);
        assert_eq!(
            (&waits.transition, &waits.reason),
            (&Transition::Blocked, &Reason::WaitingForWave { wave }),
            "{:#?}",
            scene.trace()
        );
        assert_eq!(waits.objects.len(), 1);
        assert_eq!(waits.objects[0].object.name, "database");
        for _ in 0..8 {
            if crashes {
                scene.world.crash();
            }
            pass(&mut scene, 40);
        }
        if crashes {
            // A restart prolongs the wait by less than a quarter of the limit.
            pass(&mut scene, 8 * 75);
        }
        let failed = last_report(&scene);
        assert_eq!(
            (&failed.transition, &failed.reason),
            (&Transition::Failed, &Reason::WaveNotReady { wave })
        );
        assert_eq!(scene.reports(Transition::Failed).len(), 1);
        assert!(scene.object(WEB).is_none(), "{:#?}", scene.trace());
        scene.set_ready(DATABASE, true);
        scene.settle();
        assert!(scene.object(WEB).is_some(), "{:#?}", scene.trace());
        assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
        assert_eq!(last_report(&scene).transition, Transition::Healthy);
    }
}

#[test]
fn j5_waiting_costs_no_requests() {
    let mut scene = waiting();
    scene.set_ready(DATABASE, false);
    scene.submit(&two_waves(1));
    pass(&mut scene, 90);
    let before = scene.world.made;
    pass(&mut scene, 3600);
    let made = scene.world.made - before;
    // What was counted is recorded three more times, and the failure is reported.
    assert!(made <= 5, "{made} requests: {:#?}", scene.trace());
}

#[test]
fn f2_repairs_do_not_wait_for_a_wave() {
    let mut scene = waiting();
    scene.deliver(&two_waves(1));
    scene.set_ready(DATABASE, false);
    scene.submit(&two_waves(2));
    pass(&mut scene, 30);
    for name in [SETTINGS, WEB] {
        scene.meddle(name, &Meddling::Delete);
        pass(&mut scene, 30);
        assert!(scene.object(name).is_some(), "{name}: {:#?}", scene.trace());
    }
    let web = scene.object(WEB).and_then(|object| object.applied.clone()).expect("applied");
    assert_eq!(web.body, two_waves(1)[3].desired().body, "the earlier version");
    // Once later waves are written, an earlier one that becomes unready does not matter.
    scene.set_ready(DATABASE, true);
    scene.settle();
    scene.set_ready(DATABASE, false);
    scene.meddle(WEB, &Meddling::Delete);
    scene.settle();
    assert!(scene.object(WEB).is_some());
}

fn hook(install: Option<Side>, upgrade: Option<Side>, temporary: bool) -> Option<Hook> {
    let (delete_when_complete, delete_when_failed) = (temporary, false);
    Some(Hook { weight: 0, install, upgrade, delete_when_complete, delete_when_failed })
}

const BEFORE: Option<Side> = Some(Side::Before);
const AFTER: Option<Side> = Some(Side::After);

/// A chart with a migration before everything, its settings, a smoke test after an install, and a workload.
fn chart(number: u8) -> Vec<Item> {
    vec![
        Item::new(SHOP, 1),
        Item {
            hook: hook(BEFORE, BEFORE, true).map(|hook| Hook { weight: -5, ..hook }),
            ..Item::new("/ConfigMap/shop/migration", number)
        },
        Item { hook: hook(BEFORE, BEFORE, true), ..Item::new(MIGRATE, number) },
        Item { hook: hook(AFTER, None, false), ..Item::new("batch/Job/shop/welcome", number) },
        Item { hook: hook(None, AFTER, false), ..Item::new("batch/Job/shop/reindex", number) },
        Item::new(WEB, number),
    ]
}

#[test]
fn j5_d6_helm_hooks_run_in_order_and_once_with_a_crash_at_every_step() {
    for at in 0..STEPS + 10 {
        let mut scene = Scene::strict();
        scene.world.fault = Some(Fault::Crash(at));
        scene.deliver(&chart(1));
        let counts = |scene: &Scene, number: u8| [2, 3, 4].map(|item| runs(scene, &chart(number)[item]));
        assert_eq!(counts(&scene, 1), [1, 1, 0], "crash at {at}: {:#?}", scene.trace());
        assert!(scene.object("/ConfigMap/shop/migration").is_none(), "crash at {at}: {:#?}", scene.trace());
        assert!(scene.object(MIGRATE).is_none(), "crash at {at}: {:#?}", scene.trace());
        assert!(scene.object("batch/Job/shop/welcome").is_some());
        scene.world.fault = Some(Fault::Crash(scene.world.made + at));
        scene.deliver(&chart(2));
        assert_eq!(counts(&scene, 2), [1, 0, 1], "crash at {at}: {:#?}", scene.trace());
        assert!(scene.object("batch/Job/shop/welcome").is_some(), "it stays until it runs again");
        // Equal content runs nothing again.
        scene.deliver(&chart(2));
        assert_eq!(counts(&scene, 2), [1, 0, 1], "crash at {at}: {:#?}", scene.trace());
        scene.delete();
        assert!(scene.names().is_empty(), "crash at {at}: {:?}", scene.names());
    }
}

#[test]
fn j5_the_workload_waits_for_the_hook_before_it_and_the_hook_after_it_for_the_workload() {
    let mut scene = Scene::strict();
    scene.set_ready(MIGRATE, false);
    scene.submit(&chart(1));
    pass(&mut scene, 30);
    assert!(scene.object(MIGRATE).is_some(), "{:#?}", scene.trace());
    assert!(scene.object("/ConfigMap/shop/migration").is_some(), "{:#?}", scene.trace());
    assert!(scene.object(WEB).is_none(), "{:#?}", scene.trace());
    let waits = last_report(&scene);
    assert_eq!(waits.reason, Reason::WaitingForWave { wave: Wave::HooksBefore(0) });
    scene.set_ready(WEB, false);
    scene.set_ready(MIGRATE, true);
    pass(&mut scene, 30);
    assert!(scene.object(WEB).is_some());
    assert!(scene.object("batch/Job/shop/welcome").is_none(), "{:#?}", scene.trace());
    scene.set_ready(WEB, true);
    scene.settle();
    assert!(scene.object("batch/Job/shop/welcome").is_some(), "{:#?}", scene.trace());
}

#[test]
fn d2_j5_a_hook_that_fails_is_reported_and_deleted_also_with_a_fault_at_every_step() {
    let policy = hook(BEFORE, BEFORE, false).map(|hook| Hook { delete_when_failed: true, ..hook });
    let items = [Item::new(SHOP, 1), Item { hook: policy, ..Item::new(MIGRATE, 1) }, Item::new(WEB, 1)];
    for fault in [Fault::Crash, Fault::LostAnswer, Fault::Overload] {
        for at in 0..STEPS {
            let mut scene = Scene::strict();
            scene.set_failing(MIGRATE, true);
            scene.world.fault = Some(fault(at));
            scene.submit(&items);
            pass(&mut scene, 120);
            let what = format!("{:?}: {:#?}", fault(at), scene.trace());
            let failed = last_report(&scene);
            let reason = Reason::WaveNotReady { wave: Wave::HooksBefore(0) };
            assert_eq!((&failed.transition, &failed.reason), (&Transition::Failed, &reason), "{what}");
            assert_eq!(failed.objects[0].reason, Reason::BackoffLimitExceeded, "{what}");
            assert_eq!(scene.world.server.failed_jobs.len(), 1, "{what}");
            assert!(scene.object(MIGRATE).is_none() && scene.object(WEB).is_none(), "{what}");
        }
    }
}

#[test]
fn j5_a_workload_that_is_not_always_ready_while_the_hook_after_it_runs_changes_nothing() {
    let mut scene = Scene::strict();
    let welcome = "batch/Job/shop/welcome";
    scene.set_ready(welcome, false);
    let sequence = scene.submit(&chart(1));
    pass(&mut scene, 60);
    for _ in 0..5 {
        scene.set_ready(WEB, false);
        pass(&mut scene, 40);
        scene.set_ready(WEB, true);
        pass(&mut scene, 20);
    }
    let wave = Wave::HooksAfter(0);
    let [waits] = scene.reports(Transition::Blocked)[..] else { panic!("{:#?}", scene.trace()) };
    assert_eq!(waits.reason, Reason::WaitingForWave { wave });
    assert_eq!(last_report(&scene).reason, Reason::WaveNotReady { wave }, "{:#?}", scene.trace());
    scene.set_ready(welcome, true);
    scene.settle();
    assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
}

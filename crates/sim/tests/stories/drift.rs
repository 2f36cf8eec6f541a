//! Drift that is only reported (F2): nothing is put back until the next version, or until drift is repaired again.

use brokkr_api::reason::Reason;
use brokkr_api::report::Transition;
use brokkr_api::stacks::DriftPolicy;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::Meddling;
use brokkr_sim::world::Fault;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const FLAGS: &str = "/ConfigMap/shop/flags";

/// More requests than an agent makes after a restart.
const STEPS: usize = 20;

fn version(number: u8) -> [Item; 3] {
    [Item::new(SHOP, 1), Item::new(SETTINGS, number), Item::new(FLAGS, number)]
}

#[test]
fn f2_what_others_delete_is_reported_and_not_created_again_until_drift_is_repaired_again() {
    for (crash, away) in [(false, false), (true, false), (true, true)] {
        let mut scene = Scene::with(&version(1));
        scene.world.broker.set_drift(scene.stack, DriftPolicy::Report);
        scene.settle();
        scene.world.broker.away = away;
        scene.meddle(SETTINGS, &Meddling::Delete);
        scene.settle();
        if crash {
            scene.world.crash();
            scene.settle();
        }
        assert!(scene.object(SETTINGS).is_none(), "crash {crash}, away {away}");
        scene.world.broker.away = false;
        scene.settle();
        let reported = scene
            .world
            .broker
            .reports
            .values()
            .filter(|report| report.transition == Transition::Drifted)
            .count();
        assert!(reported > 0, "crash {crash}, away {away}");
        scene.world.broker.set_drift(scene.stack, DriftPolicy::Repair);
        scene.settle();
        assert!(scene.object(SETTINGS).is_some(), "crash {crash}, away {away}: {:#?}", scene.trace());
    }
}

#[test]
fn f2_a_new_version_puts_back_what_others_have_deleted() {
    let mut scene = Scene::with(&version(1));
    scene.world.broker.set_drift(scene.stack, DriftPolicy::Report);
    scene.settle();
    scene.meddle(SETTINGS, &Meddling::Delete);
    scene.settle();
    assert!(scene.object(SETTINGS).is_none());
    scene.submit(&version(2));
    scene.settle();
    assert!(scene.object(SETTINGS).is_some(), "{:#?}", scene.trace());
}

#[test]
fn f2_drift_is_reported_once_also_if_it_cannot_be_read_after_a_restart() {
    for fault in [Fault::Crash, Fault::LostAnswer, Fault::Overload] {
        for at in 0..STEPS {
            let mut scene = Scene::with(&version(1));
            scene.world.broker.set_drift(scene.stack, DriftPolicy::Report);
            scene.settle();
            scene.world.fault = Some(fault(scene.world.made + at));
            scene.meddle(SETTINGS, &Meddling::Change);
            scene.settle();
            scene.world.crash();
            scene.settle();
            let what = format!("{:?}: {:#?}", fault(at), scene.trace());
            assert_eq!(scene.reports(Transition::Drifted).len(), 1, "{what}");
        }
    }
}

/// No event reports what happens to an object without the label.
#[test]
fn f1_f2_a_sweep_finds_what_others_do_to_an_object_without_the_label() {
    let mut scene = Scene::with(&version(1));
    scene.world.broker.set_drift(scene.stack, DriftPolicy::Report);
    scene.settle();
    scene.meddle(SETTINGS, &Meddling::TakeLabelOff);
    scene.settle();
    let reported = |scene: &Scene| {
        let last = scene.reports(Transition::Drifted).into_iter().max_by_key(|report| report.at);
        last.and_then(|report| report.objects.first()).map(|note| note.reason.clone())
    };
    assert_eq!(reported(&scene), Some(Reason::ChangedByOthers { fields: Vec::new() }));
    scene.meddle(SETTINGS, &Meddling::Delete);
    scene.settle();
    scene.world.run.state.sweep();
    scene.settle();
    assert_eq!(reported(&scene), Some(Reason::GoneByOthers), "{:#?}", scene.trace());
    assert_eq!(scene.reports(Transition::Drifted).len(), 2, "{:#?}", scene.trace());
}

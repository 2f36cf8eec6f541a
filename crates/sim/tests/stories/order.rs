//! Order and patience: what comes later waits while the server has trouble, and no failure is reported.

use brokkr_api::report::Transition;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::{Meddling, Trouble};
use brokkr_sim::world::Fault;
use jiff::SignedDuration;

const SHOP: &str = "/Namespace//shop";
const WEB: &str = "apps/Deployment/shop/web";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const NOTES: &str = "/ConfigMap/shop/notes";

/// More requests than any of these deliveries makes.
const STEPS: usize = 30;

fn version(value: u8) -> Vec<Item> {
    [SHOP, SETTINGS, WEB].iter().map(|name| Item::new(name, value)).collect()
}

/// Delivers a second version, with a fault at this request of it.
fn deliver_again(items: impl Fn(u8) -> Vec<Item>, fault: impl Fn(usize) -> Fault, at: usize) -> Scene {
    let mut scene = Scene::strict();
    scene.deliver(&items(1));
    scene.forget_trace();
    scene.world.fault = Some(fault(scene.world.made + at));
    let sequence = scene.deliver(&items(2));
    assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
    scene
}

#[test]
fn j5_a_rate_limited_config_map_holds_back_its_deployment() {
    for at in 0..STEPS {
        let scene = deliver_again(version, Fault::Overload, at);
        let settings =
            scene.trace().iter().rposition(|line| line.contains(&format!(" apply {SETTINGS} → updated")));
        let web = scene.position(&format!("apply {WEB}"));
        assert!(settings < web, "{:?} {:#?}", Fault::Overload(at), scene.trace());
    }
}

#[test]
fn j5_a_wave_waits_for_the_wave_before_it_while_the_server_has_trouble() {
    let items = |value| {
        vec![
            Item { wave: -1, ..Item::new(NOTES, value) },
            Item::new(SHOP, value),
            Item::new(SETTINGS, value),
            Item { wave: 2, ..Item::new("/Secret/shop/key", value) },
        ]
    };
    for trouble in Trouble::ALL {
        for at in 0..STEPS {
            deliver_again(items, |at| Fault::Status(at, trouble), at);
        }
    }
}

#[test]
fn d2_no_answer_of_a_server_in_trouble_is_reported_or_takes_a_namespace_back() {
    for trouble in Trouble::ALL {
        for at in 0..STEPS {
            let mut scene = Scene::strict();
            scene.world.fault = Some(Fault::Status(at, trouble));
            scene.deliver(&version(1));
            let trace = format!("{:?} {:#?}", Fault::Status(at, trouble), scene.trace());
            assert!(scene.reports(Transition::Failed).is_empty(), "{trace}");
            assert!(scene.position(&format!("delete {SHOP}")).is_none(), "{trace}");
            assert_eq!(scene.reports(Transition::Applied).len(), 1, "{trace}");
        }
    }
}

/// A refused version is tried again after five minutes, also if other objects of the stack change more often than that.
#[test]
fn d2_frequent_changes_do_not_put_off_the_next_attempt() {
    let mut scene = Scene::strict();
    scene.deliver(&version(1));
    let mut refused = version(2);
    refused.push(Item { broken: true, ..Item::new(NOTES, 1) });
    scene.deliver(&refused);
    scene.forget_trace();
    let begin = scene.world.now();
    for change in [Meddling::Change, Meddling::Delete].iter().cycle() {
        if scene.world.now().duration_since(begin) > SignedDuration::from_mins(30) {
            break;
        }
        scene.meddle(SETTINGS, change);
        scene.world.go_on(100).unwrap();
    }
    let attempts = scene.trace().iter().filter(|line| line.contains(&format!(" dry-run {NOTES} → "))).count();
    assert!((4..=6).contains(&attempts), "{attempts} attempts in 30 minutes: {:#?}", scene.trace());
}

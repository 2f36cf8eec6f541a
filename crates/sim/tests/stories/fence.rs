//! Behind the fence: metadata that others remove or forge neither stops a stack nor a removal.

use brokkr_api::report::Transition;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::server::{FORGED_SEQUENCE, Meddling};
use brokkr_sim::world::Fault;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";
const NOTES: &str = "/ConfigMap/shop/notes";

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item::new(name, 1)).collect()
}

#[test]
fn b5_a_release_whose_answer_is_lost_counts_as_done() {
    for fault in [Fault::Crash, Fault::LostAnswer, Fault::Outlived] {
        for at in 0..30 {
            let mut scene = Scene::strict();
            scene.deliver(&[Item::new(SHOP, 1), Item { keep: true, ..Item::new(SETTINGS, 1) }]);
            scene.forget_trace();
            scene.world.fault = Some(fault(scene.world.made + at));
            let sequence = scene.deliver(&items(&[SHOP]));
            let trace = format!("{:?} {:#?}", fault(at), scene.trace());
            assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence), "{trace}");
            assert_eq!(scene.object(SETTINGS).unwrap().marks.agent, None, "{trace}");
        }
    }
}

#[test]
fn e2_an_object_that_lost_its_label_while_the_agent_was_down_does_not_block_a_removal() {
    for what in [Meddling::TakeLabelOff, Meddling::TakeMarksOff] {
        let mut scene = Scene::strict();
        scene.deliver(&items(&[SHOP, SETTINGS, NOTES]));
        scene.world.broker.delete(scene.stack);
        scene.meddle(SETTINGS, &what);
        scene.world.crash();
        scene.settle();
        assert_eq!(scene.reports(Transition::Removed).len(), 1, "{what:?} {:#?}", scene.trace());
        assert!(scene.record().is_none());
        assert!(scene.object(NOTES).is_none());
    }
}

#[test]
fn f2_a_forged_sequence_stops_neither_repairs_nor_the_next_version() {
    let mut scene = Scene::strict();
    scene.deliver(&items(&[SHOP, SETTINGS]));
    let uid = scene.object(SETTINGS).unwrap().uid.clone();
    scene.meddle(SETTINGS, &Meddling::SetSequence(FORGED_SEQUENCE.into()));
    scene.settle();
    let object = scene.object(SETTINGS).unwrap();
    assert_eq!(object.drift, 0, "repaired: {:#?}", scene.trace());
    assert_ne!(object.marks.sequence.as_deref(), Some(FORGED_SEQUENCE));
    let sequence = scene.deliver(&[Item::new(SHOP, 1), Item::new(SETTINGS, 2)]);
    assert_eq!(scene.record().and_then(|record| record.applied), Some(sequence));
    assert_eq!(scene.object(SETTINGS).unwrap().uid, uid, "it stays the same object");
}

//! An object that moves from one stack of the agent to another is handed over by one apply, whichever stack is
//! reconciled first, and never deleted.

use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;
use brokkr_sim::world::World;

const MOVED: &str = "/ConfigMap/default/moved";
const STAYS: &str = "/ConfigMap/default/stays";

/// Moves an object from the first stack to the second. `receiver_first` is the order of submission; `turns`
/// pass after the submission to the receiver.
fn move_it(receiver_first: bool, turns: usize) -> Scene {
    let mut scene = Scene::with(&[Item::new(MOVED, 1), Item::new(STAYS, 1)]);
    let receiver = World::stack_id(5);
    scene.submit_to(receiver, &[Item::new("/ConfigMap/default/other", 1)]);
    scene.settle();
    scene.forget_trace();
    let gives = [Item::new(STAYS, 1)];
    let takes = [Item::new("/ConfigMap/default/other", 1), Item::new(MOVED, 2)];
    if receiver_first {
        scene.submit_to(receiver, &takes);
        scene.world.go_on(turns).unwrap();
        scene.submit(&gives);
    } else {
        scene.submit(&gives);
        scene.submit_to(receiver, &takes);
        scene.world.go_on(turns).unwrap();
    }
    scene
}

#[test]
fn c4_an_object_moved_between_stacks_is_handed_over_by_one_apply_and_never_deleted() {
    for receiver_first in [true, false] {
        for turns in 0..40 {
            let mut scene = move_it(receiver_first, turns);
            let uid = scene.object(MOVED).unwrap().uid.clone();
            scene.settle();
            let object = scene.object(MOVED).expect("it always exists");
            let trace = format!("{receiver_first} {turns} {:#?}", scene.trace());
            assert_eq!(object.uid, uid, "{trace}");
            assert_eq!(object.marks.stack, Some(World::stack_id(5).to_string()), "{trace}");
            assert!(scene.position(&format!("delete {MOVED}")).is_none(), "{trace}");
            let applies =
                scene.trace().iter().filter(|line| line.contains(&format!("apply {MOVED} "))).count();
            assert_eq!(applies, 1, "{trace}");
            brokkr_sim::end::check(&scene.world).unwrap();
        }
    }
}

#[test]
fn d6_a_crash_in_the_middle_of_a_hand_over_loses_nothing() {
    for receiver_first in [true, false] {
        for at in 0..40 {
            let mut scene = move_it(receiver_first, 0);
            let uid = scene.object(MOVED).unwrap().uid.clone();
            scene.world.go_on(at).unwrap();
            scene.world.crash();
            scene.settle();
            assert_eq!(scene.object(MOVED).map(|object| object.uid.clone()), Some(uid));
            brokkr_sim::end::check(&scene.world).unwrap();
        }
    }
}

//! A version that is withdrawn while it is being delivered (H3, H5): an agent that has begun it finishes it, one that has not
//! never begins it.

use brokkr_api::SequenceId;
use brokkr_api::envelope::Grant;
use brokkr_sim::objects::Item;
use brokkr_sim::scene::Scene;

const SHOP: &str = "/Namespace//shop";
const SETTINGS: &str = "/ConfigMap/shop/settings";

/// More than a delivery of two objects takes.
const TURNS: usize = 60;

fn version(number: u8) -> [Item; 2] {
    [Item::new(SHOP, 1), Item::new(SETTINGS, number)]
}

/// The version of the record, if there is one, and whether the objects are those of the second version.
fn outcome(scene: &Scene, expected: &Scene) -> (Option<SequenceId>, bool) {
    let applied = |scene: &Scene| scene.object(SETTINGS).map(|object| object.applied.clone());
    (scene.record().map(|record| record.sequence), applied(scene) == applied(expected))
}

/// Returns how often the version was begun and how often not, over all moments of a withdrawal.
fn at_every_turn(prepare: impl Fn() -> Scene, crash: bool) -> [usize; 2] {
    let mut ends = [0, 0];
    for turns in 0..TURNS {
        let (mut scene, mut expected) = (prepare(), prepare());
        let before = scene.record().map(|record| record.sequence);
        let second = expected.deliver(&version(2));
        assert_eq!(scene.submit(&version(2)), second);
        scene.world.go_on(turns).expect("no violation");
        let begun = scene.record().is_some_and(|record| record.sequence == second);
        scene.world.broker.withdraw(scene.stack);
        if crash {
            scene.world.crash();
        }
        scene.settle();
        let (sequence, is_second) = outcome(&scene, &expected);
        // A write of the record may be under way at the withdrawal.
        let finished = sequence == Some(second);
        assert!(finished || !begun, "begun and not finished after {turns} turns");
        assert_eq!(is_second, finished, "after {turns} turns");
        assert!(finished || sequence == before, "{sequence:?} after {turns} turns");
        ends[usize::from(finished)] += 1;
        // The next version reaches every agent, whatever it has.
        let third = scene.deliver(&version(3));
        assert_eq!(scene.record().map(|record| record.sequence), Some(third));
    }
    ends
}

#[test]
fn h3_h5_an_agent_finishes_a_withdrawn_version_only_if_it_has_begun_it() {
    for crash in [false, true] {
        let [not_begun, begun] = at_every_turn(|| Scene::with(&version(1)), crash);
        assert!(not_begun > 0 && begun > 0, "{not_begun} {begun}");
    }
}

#[test]
fn a_first_version_that_is_withdrawn_is_kept_only_if_it_was_begun() {
    for crash in [false, true] {
        let [not_begun, begun] = at_every_turn(Scene::new, crash);
        assert!(not_begun > 0 && begun > 0, "{not_begun} {begun}");
    }
}

#[test]
fn a_removal_reaches_an_agent_that_has_a_withdrawn_version() {
    let mut scene = Scene::with(&version(1));
    scene.deliver(&version(2));
    scene.world.broker.withdraw(scene.stack);
    scene.settle();
    scene.world.broker.target(scene.stack, false);
    scene.settle();
    assert_eq!((scene.names(), scene.record().is_none()), (Vec::new(), true));
}

/// The removal goes with the newest version, which is released to other agents only. Whenever the agent is targeted again, it
/// ends with the version that it gets, and nothing is lost that need not be.
#[test]
fn an_agent_that_is_targeted_again_ends_with_the_version_that_it_is_told() {
    for turns in 0..TURNS {
        let mut scene = Scene::with(&version(1));
        let first = scene.record().map(|record| record.sequence);
        scene.submit(&version(2));
        scene.world.broker.withdraw(scene.stack);
        scene.settle();
        scene.world.broker.target(scene.stack, false);
        scene.world.go_on(turns).expect("no violation");
        scene.world.broker.target(scene.stack, true);
        scene.settle();
        assert_eq!(
            scene.record().map(|record| (Some(record.sequence), record.removal)),
            Some((first, None)),
            "{turns}"
        );
        assert!(scene.object(SETTINGS).is_some(), "after {turns} turns");
    }
}

/// A record that only says why the version cannot be applied has begun nothing.
#[test]
fn a_version_that_was_refused_and_withdrawn_is_not_begun_when_the_obstacle_is_gone() {
    let mut scene = Scene::new();
    let refused = scene.submit(&version(1));
    let narrow = Grant { namespaces: vec!["other".into()], kinds: vec!["*".into()], account: None };
    scene.world.broker.grant(scene.stack, Some(narrow));
    scene.settle();
    assert_eq!(scene.record().map(|record| record.sequence), Some(refused), "the refusal is recorded");
    assert!(scene.names().is_empty());
    scene.world.broker.withdraw(scene.stack);
    scene.settle();
    scene.world.broker.grant(scene.stack, None);
    scene.settle();
    assert!(scene.names().is_empty(), "{:?}", scene.names());
    let second = scene.deliver(&version(2));
    assert_eq!(scene.record().map(|record| record.sequence), Some(second));
}

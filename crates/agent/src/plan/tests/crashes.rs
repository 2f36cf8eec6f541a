//! Crash after every prefix of steps: the next run finds what the last one did, and ends the same.

use std::collections::BTreeSet;

use brokkr_api::envelope::Removal;
use brokkr_manifest::Key;
use proptest::prelude::*;

use super::pretend::{Pretend, content, key};
use crate::plan::steps::Stage;
use crate::plan::types::Goal;
use crate::resource::is_ground;

const RESOURCES: [&str; 6] = [
    "/Namespace//shop",
    "/ConfigMap/shop/settings",
    "/Secret/shop/key",
    "apps/Deployment/shop/web",
    "/Service/shop/web",
    "/ConfigMap/other/notes",
];

/// A deployment object as a choice of resources and values; `None` removes the stack.
type Wish = Option<Vec<Option<u8>>>;

fn resources(wish: &[Option<u8>]) -> Vec<(&'static str, String)> {
    let mut chosen: Vec<_> = RESOURCES
        .iter()
        .zip(wish)
        .filter_map(|(name, value)| value.map(|value| (*name, value.to_string())))
        .collect();
    if chosen.is_empty() {
        chosen.push((RESOURCES[5], "0".to_owned()));
    }
    chosen
}

fn goal(cluster: &Pretend, sequence: i64, wish: &Wish) -> Goal {
    match wish {
        None => cluster.remove(sequence, Removal::Deleted),
        Some(wish) => {
            let chosen = resources(wish);
            let borrowed: Vec<(&str, &str)> =
                chosen.iter().map(|(name, value)| (*name, value.as_str())).collect();
            cluster.have(&content(sequence, &borrowed))
        }
    }
}

fn wanted(wish: &Wish) -> BTreeSet<Key> {
    wish.iter().flat_map(|wish| resources(wish)).map(|(name, _)| key(name)).collect()
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let wish = proptest::collection::vec(proptest::option::of(0u8..3), RESOURCES.len());
    proptest::collection::vec(prop_oneof![4 => wish.prop_map(Some), 1 => Just(None)], 1..5)
}

/// D6, found by the fault matrix: made by a run that was killed before it could record so, the namespace counted as
/// somebody else's, and stayed for ever.
#[test]
fn d6_a_namespace_that_was_made_just_before_a_crash_goes_with_its_stack() {
    for crash in 0..20 {
        let mut cluster = Pretend::new();
        let have = cluster.have(&content(1, &[("/Namespace//shop", "1"), ("/ConfigMap/shop/settings", "1")]));
        let mut killed = cluster.start(have.clone());
        cluster.run(&mut killed, crash);
        let mut next = cluster.start(have);
        assert_eq!(cluster.run(&mut next, usize::MAX).1, Stage::Steady);
        let mut last = cluster.start(cluster.remove(2, Removal::Deleted));
        assert_eq!(cluster.run(&mut last, usize::MAX).1, Stage::Done);
        assert!(cluster.objects.is_empty(), "killed after {crash} steps, left {:?}", cluster.objects.keys());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_crash_after_any_step_ends_where_no_crash_would_have(wishes in wishes(), crash in 0usize..40) {
        let mut cluster = Pretend::new();
        let foreign = cluster.put_foreign("/ConfigMap/other/theirs");
        let untouched = cluster.objects[&foreign].clone();
        for (at, wish) in wishes.iter().enumerate() {
            let sequence = i64::try_from(at).unwrap() + 1;
            // A stack that was removed comes back under a new id: a new record.
            let goal = goal(&cluster, sequence, wish);
            if wish.is_none() && cluster.record.is_none() {
                continue;
            }
            let mut first = cluster.start(goal.clone());
            cluster.run(&mut first, crash);
            // Without a record the stack is not held, and the reconciler ignores its removal.
            if wish.is_some() || cluster.record.is_some() {
                let mut second = cluster.start(goal.clone());
                let (_, stage) = cluster.run(&mut second, usize::MAX);
                prop_assert_eq!(stage, if wish.is_none() { Stage::Done } else { Stage::Steady });
            }

            // A namespace that is no longer named, but still needed, was released: it is nobody's now.
            let released = |key: &Key| is_ground(key) && cluster.objects[key].agent.is_none();
            let live: BTreeSet<Key> =
                cluster.objects.keys().filter(|key| **key != foreign && !released(key)).cloned().collect();
            prop_assert_eq!(&live, &wanted(wish), "nothing missing, nothing leaked");
            prop_assert_eq!(&cluster.objects[&foreign], &untouched, "nothing foreign touched");
            if let Some(record) = &cluster.record {
                let recorded: BTreeSet<Key> = record.inventory.keys().cloned().collect();
                prop_assert_eq!(&recorded, &wanted(wish));
            }
            let told = cluster.transitions();
            let last = if wish.is_none() { "removed" } else { "applied" };
            prop_assert_eq!(told.get(&format!("{sequence} {last}")), Some(&1), "told once: {:?}", told);

            // Once there, it stays and stops writing.
            let mut third = cluster.start(goal);
            if wish.is_some() {
                let (made, _) = cluster.run(&mut third, usize::MAX);
                prop_assert_eq!(made, 0, "steady costs nothing: {:?}", cluster.steps.last());
            }
        }
    }
}

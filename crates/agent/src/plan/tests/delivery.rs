//! One decision a test: order, validation, adoption, prune, removal, repair.

use brokkr_api::envelope::Removal;
use jiff::SignedDuration;

use super::pretend::{Pretend, content, key};
use crate::execute::classify::unreachable;
use crate::plan::absorb::absorb;
use crate::plan::steps::{Answer, Stage};
use crate::plan::types::Fingerprint;

const SHOP: (&str, &str) = ("/Namespace//shop", "1");
const WEB: (&str, &str) = ("apps/Deployment/shop/web", "1");
const SETTINGS: (&str, &str) = ("/ConfigMap/shop/settings", "1");

fn delivered(resources: &[(&str, &str)]) -> Pretend {
    let mut cluster = Pretend::new();
    let mut agent = cluster.start(cluster.have(&content(1, resources)));
    let (_, stage) = cluster.run(&mut agent, usize::MAX);
    assert_eq!(stage, Stage::Steady);
    cluster
}

#[test]
fn the_ground_comes_first_and_configuration_before_workloads() {
    let cluster = delivered(&[WEB, SETTINGS, SHOP]);
    let position = |step: &str| cluster.steps.iter().position(|made| made == step).expect(step);
    assert!(position("hold") < position("write-record"));
    assert!(position("write-record") < position("apply /Namespace//shop"));
    assert!(position("apply /Namespace//shop") < position("dry-run apps/Deployment/shop/web"));
    assert!(position("dry-run apps/Deployment/shop/web") < position("apply /ConfigMap/shop/settings"));
    assert!(position("apply /ConfigMap/shop/settings") < position("apply apps/Deployment/shop/web"));
}

#[test]
fn a_permanent_error_of_validation_stops_before_the_first_real_write_of_the_rest() {
    let mut cluster = Pretend::new();
    cluster.invalid = [key(WEB.0), key(SETTINGS.0)].into();
    let mut agent =
        cluster.start(cluster.have(&content(1, &[SHOP, WEB, SETTINGS, ("/Service/shop/web", "1")])));
    let (_, stage) = cluster.run(&mut agent, usize::MAX);
    assert_eq!(stage, Stage::Stopped);
    assert!(cluster.objects.is_empty(), "D1: the namespace that it made is taken back");
    let report = cluster.events.values().next().expect("reported");
    assert_eq!(report.objects.len(), 2, "all errors are collected: {:?}", report.objects);
}

/// Found by a pair of faults: it was taken for an error of validation, and stopped the stack for five minutes.
#[test]
fn a_first_apply_that_was_cut_off_is_made_again() {
    let mut cluster = Pretend::new();
    let mut agent = cluster.start(cluster.have(&content(1, &[SHOP, SETTINGS])));
    let apply = loop {
        let step = cluster.plan(&agent).steps.first().expect("a step").clone();
        if step.name() == "apply" && step.key() == Some(&key(SETTINGS.0)) {
            break step;
        }
        cluster.take(&mut agent, &step);
    };
    let cut = Answer::Failed(unreachable(&"cut off"));
    absorb(&mut agent.progress, &mut agent.record, &apply, &cut, cluster.now);
    assert_ne!(cluster.plan(&agent).stage, Stage::Stopped);
    cluster.now += SignedDuration::from_secs(2);
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
}

#[test]
fn what_another_stack_owns_is_refused_before_anything_is_written() {
    let mut cluster = Pretend::new();
    let other = cluster.put_foreign(SETTINGS.0);
    let seen = cluster.objects.get_mut(&other).unwrap();
    (seen.agent, seen.stack, seen.names_itself) = (Some("another".into()), Some("theirs".into()), true);
    let before = cluster.objects.clone();
    let mut agent = cluster.start(cluster.have(&content(1, &[SHOP, SETTINGS])));
    cluster.objects.insert(key(SHOP.0), before[&other].clone());
    cluster.objects.get_mut(&key(SHOP.0)).unwrap().agent = None;
    cluster.objects.get_mut(&key(SHOP.0)).unwrap().names_itself = false;
    let before = cluster.objects.clone();
    cluster.run(&mut agent, usize::MAX);
    assert_eq!(cluster.objects, before);
    assert_eq!(cluster.transitions()["1 failed"], 1);
}

#[test]
fn an_adopted_namespace_is_released_and_a_created_one_with_foreign_content_is_left_and_named() {
    for adopted in [true, false] {
        let mut cluster = Pretend::new();
        if adopted {
            cluster.put_foreign(SHOP.0);
        }
        let mut agent = cluster.start(cluster.have(&content(1, &[SHOP, SETTINGS])));
        cluster.run(&mut agent, usize::MAX);
        let foreign = cluster.put_foreign("/ConfigMap/shop/theirs");
        agent.goal = cluster.remove(2, Removal::Deleted);
        agent.progress = Default::default();
        let (_, stage) = cluster.run(&mut agent, usize::MAX);
        assert_eq!(stage, Stage::Done);
        assert_eq!(cluster.objects.keys().collect::<Vec<_>>(), [&foreign, &key(SHOP.0)]);
        assert_eq!(cluster.objects[&key(SHOP.0)].agent, None, "no longer marked as ours");
        let report = cluster.events.values().find(|report| report.sequence_id.0 == 2).unwrap();
        assert!(report.message.contains("Namespace shop"), "{}", report.message);
        assert_eq!(
            report.message.contains("ConfigMap theirs") || report.message.contains("theirs"),
            !adopted
        );
    }
}

#[test]
fn what_was_only_intended_is_not_ours_to_delete() {
    let mut cluster = Pretend::new();
    cluster.invalid = [key(WEB.0)].into();
    cluster.put_foreign(SHOP.0);
    let foreign = cluster.put_foreign(SETTINGS.0);
    let before = cluster.objects[&foreign].clone();
    let mut agent = cluster.start(cluster.have(&content(1, &[SHOP, SETTINGS, WEB])));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Stopped);
    let mut agent = cluster.start(cluster.have(&content(2, &[SHOP])));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    assert_eq!(cluster.objects[&foreign], before);
}

#[test]
fn a_child_of_somebody_elses_controller_is_skipped_by_prune() {
    let mut cluster = delivered(&[SHOP, SETTINGS, WEB]);
    cluster.objects.get_mut(&key(SETTINGS.0)).unwrap().has_owner = true;
    let mut agent = cluster.start(cluster.have(&content(2, &[SHOP])));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    assert_eq!(cluster.objects.keys().collect::<Vec<_>>(), [&key(SETTINGS.0), &key(SHOP.0)]);
}

#[test]
fn a_mass_prune_waits_for_approval_and_goes_on_with_it() {
    let names: Vec<String> = (0..80).map(|number| format!("/ConfigMap/shop/c{number}")).collect();
    let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let mut cluster = delivered(&resources);
    let goal = cluster.have(&content(2, &resources[..10]));
    let mut agent = cluster.start(goal);
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Prune);
    assert_eq!(cluster.objects.len(), 80);
    assert_eq!(cluster.transitions()["2 blocked"], 1);
    agent.goal.target.approvals.push(brokkr_api::envelope::Approval {
        sequence_id: agent.goal.target.sequence_id,
        objects: 70,
        approved_by: "ana".into(),
        approved_at: cluster.now,
    });
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    assert_eq!(cluster.objects.len(), 10);
}

#[test]
fn a_finalizer_that_blocks_is_named_and_the_rest_waits_for_it() {
    let mut cluster = delivered(&[SHOP, SETTINGS]);
    cluster.objects.get_mut(&key(SETTINGS.0)).unwrap().finalizers = vec!["example.com/hold".into()];
    let mut agent = cluster.start(cluster.remove(2, Removal::Deleted));
    cluster.run(&mut agent, usize::MAX);
    agent.progress.waiting_since = Some(cluster.now);
    cluster.now += crate::plan::BLOCKED_AFTER;
    cluster.run(&mut agent, usize::MAX);
    let blocked = cluster.events.values().find(|report| report.transition.to_string() == "blocked").unwrap();
    assert!(blocked.message.contains("example.com/hold"), "{}", blocked.message);
    assert!(!cluster.transitions().contains_key("2 removed"));
    cluster.objects.remove(&key(SETTINGS.0));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Done);
    assert!(cluster.objects.is_empty());
}

#[test]
fn equal_content_again_applies_everything_with_the_old_stamp() {
    let mut cluster = delivered(&[SHOP, SETTINGS]);
    let stamp = cluster.record.as_ref().unwrap().stamp;
    cluster.steps.clear();
    let mut agent = cluster.start(cluster.have(&content(2, &[SHOP, SETTINGS])));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    assert!(cluster.steps.contains(&"apply /ConfigMap/shop/settings".to_owned()), "{:?}", cluster.steps);
    assert_eq!(cluster.record.as_ref().unwrap().stamp, stamp);
    assert_eq!(cluster.record.as_ref().unwrap().sequence.0, 2);
}

#[test]
fn the_record_of_a_removed_stack_stays_until_the_broker_knows() {
    let mut cluster = delivered(&[SHOP, SETTINGS]);
    cluster.silent = true;
    let mut agent = cluster.start(cluster.remove(2, Removal::Deleted));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Done);
    assert!(cluster.objects.is_empty());
    assert!(cluster.record.is_some(), "else a crash now would lose the report");
    cluster.hear_again(&mut agent);
    cluster.run(&mut agent, usize::MAX);
    assert_eq!(cluster.record, None);
    assert_eq!(cluster.transitions()["2 removed"], 1);
}

#[test]
fn what_was_put_back_while_the_next_content_was_on_its_way_still_gets_it() {
    let (old, new) = (content(1, &[SHOP, SETTINGS]), content(2, &[SHOP, (SETTINGS.0, "2")]));
    let mut cluster = delivered(&[SHOP, SETTINGS]);
    let mut agent = cluster.start(cluster.have(&new));
    (agent.goal.content, agent.goal.fallback) = (None, Some(old));
    cluster.objects.get_mut(&key(SETTINGS.0)).unwrap().fields = None;
    let plan = cluster.plan(&agent);
    let repairs: Vec<_> = plan.steps.iter().filter(|step| step.name() == "apply").collect();
    assert_eq!((plan.stage, repairs.len()), (Stage::Fetch, 1), "{:?}", plan.steps);
    cluster.take(&mut agent, repairs[0]);
    agent.goal.content = Some(new.clone());
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    let wanted = new.objects[&key(SETTINGS.0)].digest.to_string();
    assert_eq!(cluster.objects[&key(SETTINGS.0)].fields, Some(Fingerprint::of(&wanted)));
}

#[test]
fn a_removal_that_is_taken_back_half_way_turns_round() {
    let mut cluster = delivered(&[SHOP, SETTINGS, WEB]);
    let mut agent = cluster.start(cluster.remove(1, Removal::Untargeted));
    cluster.run(&mut agent, 3);
    assert!(cluster.objects.len() < 3, "half-way");
    let mut agent = cluster.start(cluster.have(&content(1, &[SHOP, SETTINGS, WEB])));
    assert_eq!(cluster.run(&mut agent, usize::MAX).1, Stage::Steady);
    assert_eq!(cluster.objects.len(), 3);
    assert_eq!(cluster.record.as_ref().unwrap().removal, None);
}

//! What agents get, may read and may report while a version is rolled out, and after it is withdrawn.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::audit::RefusalReason;
use brokkr_api::envelope::{Removal, TargetStack};
use brokkr_api::{InstallationId, StackId};
use jiff::Timestamp;

use super::super::claims::{reads_as_target, report};
use super::super::envelope::envelope;
use super::super::facts::ExplicitTarget;
use super::super::fixtures::{agent, object};
use super::super::grants::ProjectGrants;
use super::*;

fn marker(sequence: i64) -> ObjectFacts {
    ObjectFacts { is_deletion_marker: true, ..object(sequence) }
}

fn release(sequence: i64, open: bool, upto: u64) -> Release {
    let clauses = vec![Clause { selector: None, lanes: Lanes::default(), upto }];
    Release { object: object(sequence), seed: 1, open, clauses, revision: 1, windows: Windows::default() }
}

/// A stack that targets these agents.
fn stack(agents: &[&AgentFacts], base: Option<i64>, releases: Vec<Release>) -> StackFacts {
    let mut stack = StackFacts::new("default".into(), StackId::generate(), "web".into())
        .with_base(base.map(object))
        .with_releases(releases);
    stack.grants = Arc::new(ProjectGrants::Unlimited);
    stack.targets =
        agents.iter().map(|agent| ExplicitTarget { agent: agent.id, since: Timestamp::UNIX_EPOCH }).collect();
    stack.targets.sort_unstable_by_key(|target| target.agent);
    stack
}

/// The release of the version 41 to agents up to a mark; these agents had the stack before.
fn widening(had: &[&AgentFacts], open: bool, upto: u64) -> Widening {
    let mut agents: Vec<AgentId> = had.iter().map(|agent| agent.id).collect();
    agents.sort_unstable();
    let had = EarlierTargets { agents, selectors: Vec::new() };
    Widening { key: SequenceId(50), release: release(41, open, upto), had, earlier: Vec::new() }
}

fn target(agent: &AgentFacts, stack: &StackFacts) -> Option<TargetStack> {
    envelope(InstallationId::generate(), agent, [stack], None).stacks.pop()
}

fn version(agent: &AgentFacts, stack: &StackFacts) -> Option<i64> {
    target(agent, stack).map(|target| target.sequence_id.0)
}

const ALL: u64 = u64::MAX;

#[test]
fn places_are_spread_evenly_and_each_seed_gives_another_order() {
    let agents: Vec<AgentId> = (0..10_000).map(|_| AgentId::generate()).collect();
    let first = |seed: u64| -> BTreeSet<AgentId> {
        agents.iter().copied().filter(|agent| place(*agent, seed) <= u64::MAX / 10).collect()
    };
    let (one, other) = (first(1), first(2));
    // Ten percent of ten thousand, with a standard deviation of 30.
    for released in [&one, &other] {
        assert!((800..1200).contains(&released.len()), "{}", released.len());
    }
    assert!(one.intersection(&other).count() < 300, "the order hardly depends on the seed");
}

#[test]
fn only_agents_up_to_the_mark_get_the_new_version() {
    let (one, other) = (agent(), agent());
    let (first, last) = if place(one.id, 1) < place(other.id, 1) { (&one, &other) } else { (&other, &one) };
    let rolling = stack(&[first, last], Some(41), vec![release(42, true, place(first.id, 1))]);
    assert_eq!((version(first, &rolling), version(last, &rolling)), (Some(42), Some(41)));
    // What a released agent gets does not change when the rollout completes, so no agent is woken.
    let mut completed = rolling.clone();
    completed.release_as(&stack(&[], Some(42), Vec::new()));
    assert_eq!(target(first, &rolling), target(first, &completed));
}

#[test]
fn no_agent_gets_a_withdrawn_version_and_one_that_has_begun_it_keeps_it() {
    let mut agent = agent();
    let stopped = stack(&[&agent], Some(41), vec![release(42, false, ALL)]);
    assert_eq!(version(&agent, &stopped), Some(41));
    // The agent may have begun 42: it reads and reports what was released to it.
    agent.hold(vec![stopped.id], Vec::new());
    assert!(reads_as_target(&agent, &stopped, SequenceId(42)));
    assert_eq!(report(Some(&agent), Some(&stopped), SequenceId(42)), Ok(()));
    // Without a base, an agent that cannot have begun it gets nothing.
    let first = StackFacts { id: stopped.id, ..stack(&[&agent], None, vec![release(42, false, ALL)]) };
    let kept = target(&agent, &first).expect("a holder keeps it");
    assert_eq!((kept.sequence_id, kept.withdrawn), (SequenceId(42), true));
    agent.hold(Vec::new(), Vec::new());
    assert_eq!(target(&agent, &first), None);
}

#[test]
fn j1_a_version_that_was_never_released_to_the_agent_is_neither_read_nor_reported() {
    let agent = agent();
    let rolling = stack(&[&agent], Some(41), vec![release(42, true, 0)]);
    let agent = agent.holding(vec![rolling.id]);
    assert!(!reads_as_target(&agent, &rolling, SequenceId(42)));
    assert!(reads_as_target(&agent, &rolling, SequenceId(41)));
    assert_eq!(report(Some(&agent), Some(&rolling), SequenceId(42)), Err(RefusalReason::NotReleased));
    // 42 was superseded before it reached the agent; 43 has reached it.
    let superseding = vec![release(42, false, 0), release(43, true, ALL)];
    let superseded = StackFacts { id: rolling.id, ..stack(&[&agent], Some(41), superseding) };
    assert_eq!(version(&agent, &superseded), Some(43));
    assert_eq!(report(Some(&agent), Some(&superseded), SequenceId(43)), Ok(()));
    assert_eq!(report(Some(&agent), Some(&superseded), SequenceId(42)), Err(RefusalReason::NotReleased));
}

#[test]
fn e3_a_removal_goes_with_the_newest_version_whatever_is_released() {
    let agent = agent();
    for releases in [vec![release(42, false, ALL)], vec![release(42, true, 0)]] {
        let untargeted = stack(&[], Some(41), releases);
        let holder = agent.clone().holding(vec![untargeted.id]);
        let removal = target(&holder, &untargeted).expect("a removal");
        assert_eq!((removal.sequence_id, removal.removal), (SequenceId(42), Some(Removal::Untargeted)));
        assert_eq!(report(Some(&holder), Some(&untargeted), SequenceId(42)), Ok(()));
    }
}

#[test]
fn a_deletion_reaches_only_holders_up_to_the_mark() {
    let agent = agent();
    let mut deleting = stack(&[&agent], Some(41), vec![release(42, true, ALL)]);
    deleting.releases[0].object = marker(42);
    assert_eq!(target(&agent, &deleting), None, "it has nothing to delete");
    let holder = agent.holding(vec![deleting.id]);
    let removal = target(&holder, &deleting).expect("a removal");
    assert_eq!((removal.sequence_id, removal.removal), (SequenceId(42), Some(Removal::Deleted)));
    deleting.releases[0].clauses[0].upto = 0;
    assert_eq!(
        target(&holder, &deleting).map(|target| (target.sequence_id.0, target.removal)),
        Some((41, None))
    );
}

#[test]
fn h7_gained_agents_get_the_base_up_to_the_mark_and_completion_changes_nothing() {
    let (old, one, other) = (agent(), agent(), agent());
    let (first, last) = if place(one.id, 1) < place(other.id, 1) { (&one, &other) } else { (&other, &one) };
    let at_rest = stack(&[&old, first, last], Some(41), Vec::new());
    let widened = |open, upto| at_rest.clone().with_widening(Some(widening(&[&old], open, upto)));
    let begun = widened(true, 0);
    assert_eq!([&old, first, last].map(|agent| version(agent, &begun)), [Some(41), None, None]);
    assert_eq!(target(&old, &begun), target(&old, &at_rest), "it has the stack already");
    let reached = widened(true, place(first.id, 1));
    assert_eq!([&old, first, last].map(|agent| version(agent, &reached)), [Some(41), Some(41), None]);
    assert_eq!(
        target(first, &reached),
        target(first, &at_rest),
        "completion wakes no agent that was reached"
    );
    // J1: an agent that was not reached neither reads nor reports the base.
    let holder = last.clone().holding(vec![reached.id]);
    assert!(!reads_as_target(&holder, &reached, SequenceId(41)));
    assert_eq!(report(Some(last), Some(&reached), SequenceId(41)), Err(RefusalReason::NotReleased));
    assert_eq!(report(Some(first), Some(&reached), SequenceId(41)), Ok(()));
}

#[test]
fn h7_a_stopped_widening_withdraws_the_base_only_from_gained_agents_that_have_not_begun_it() {
    let (old, gained) = (agent(), agent());
    let stopped = stack(&[&old, &gained], Some(41), Vec::new());
    let mut stopped = stopped.with_widening(Some(widening(&[&old], false, ALL)));
    let withdrawn =
        |agent: &AgentFacts, stack: &StackFacts| target(agent, stack).map(|target| target.withdrawn);
    assert_eq!((withdrawn(&old, &stopped), withdrawn(&gained, &stopped)), (Some(false), None));
    let holder = gained.holding(vec![stopped.id]);
    assert_eq!(withdrawn(&holder, &stopped), Some(true));
    assert_eq!(report(Some(&holder), Some(&stopped), SequenceId(41)), Ok(()), "it may have begun the base");
    // Another widening takes its place, and has not reached the agent yet.
    let earlier = stopped.widening().map(|widening| widening.release.clauses.clone()).unwrap_or_default();
    stopped = stopped.with_widening(Some(Widening { earlier, ..widening(&[&old], true, 0) }));
    assert_eq!(withdrawn(&holder, &stopped), Some(true));
    assert_eq!(report(Some(&holder), Some(&stopped), SequenceId(41)), Ok(()));
}

#[test]
fn h7_while_a_version_is_rolled_out_gained_agents_get_only_that_version() {
    let (old, one, other) = (agent(), agent(), agent());
    let (first, last) = if place(one.id, 1) < place(other.id, 1) { (&one, &other) } else { (&other, &one) };
    let releases = vec![release(42, true, place(first.id, 1))];
    let rolling = stack(&[&old, first, last], Some(41), releases);
    let rolling = rolling.with_widening(Some(widening(&[&old], false, 0)));
    assert_eq!((version(first, &rolling), version(last, &rolling)), (Some(42), None));
    let has_old = version(&old, &rolling);
    assert!(has_old == Some(41) || has_old == Some(42), "by its place in the order: {has_old:?}");
    // Labels that the earlier targets selected make an agent one of them.
    let selectors = vec!["!gone".parse().unwrap()];
    let had = EarlierTargets { agents: Vec::new(), selectors };
    let selected = rolling.with_widening(Some(Widening { had, ..widening(&[], false, 0) }));
    assert_eq!(version(last, &selected), Some(41));
}

//! What agents get, may read and may report while a version is rolled out, and after it is withdrawn.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::audit::RefusalReason;
use brokkr_api::envelope::{Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::{InstallationId, StackId};
use jiff::Timestamp;

use super::super::claims::{reads_as_target, report};
use super::super::envelope::envelope;
use super::super::facts::{ExplicitTarget, SessionFacts};
use super::super::grants::ProjectGrants;
use super::super::labels::LabelSet;
use super::*;

fn agent() -> AgentFacts {
    AgentFacts {
        id: AgentId::generate(),
        name: "shop-1".into(),
        status: AgentStatus::Active,
        labels: LabelSet::default(),
        labels_changed_at: Timestamp::UNIX_EPOCH,
        public_key: [0; 32],
        session: SessionFacts::default(),
        new_key_wanted: false,
        holds: Vec::new(),
        holds_digest: Checksum::of(b""),
        unconfirmed: Box::default(),
    }
}

fn object(sequence: i64, is_deletion_marker: bool) -> ObjectFacts {
    ObjectFacts {
        sequence_id: SequenceId(sequence),
        checksum: Checksum::of(&sequence.to_be_bytes()),
        parsed_digest: Checksum::of(b"{}"),
        is_deletion_marker,
        keeps_resources: false,
        resources: 1,
        published_at: Timestamp::UNIX_EPOCH,
    }
}

fn release(sequence: i64, open: bool, upto: u64) -> Release {
    let clauses = vec![Clause { selector: None, upto }];
    Release { object: object(sequence, false), seed: 1, open, clauses, revision: 1 }
}

/// A stack that targets these agents.
fn stack(agents: &[&AgentFacts], base: Option<i64>, releases: Vec<Release>) -> StackFacts {
    let mut stack = StackFacts::new("default".into(), StackId::generate(), "web".into())
        .with_base(base.map(|base| object(base, false)))
        .with_releases(releases);
    stack.grants = Arc::new(ProjectGrants::Unlimited);
    stack.targets =
        agents.iter().map(|agent| ExplicitTarget { agent: agent.id, since: Timestamp::UNIX_EPOCH }).collect();
    stack.targets.sort_unstable_by_key(|target| target.agent);
    stack
}

fn target(agent: &AgentFacts, stack: &StackFacts) -> Option<TargetStack> {
    envelope(InstallationId::generate(), agent, [stack]).stacks.pop()
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
    deleting.releases[0].object = object(42, true);
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

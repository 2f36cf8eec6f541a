//! What the views of a fleet know, over random histories: what each agent should have, and what it has last reported.

use std::collections::BTreeMap;

use brokkr_api::agents::AgentStatus;
use brokkr_api::{AgentId, InstallationId, SequenceId, StackId};
use proptest::prelude::*;

use super::{AGENTS, PROJECTS, STACKS, Truth, agent_id, several, stack_id};
use crate::domain::envelope::{awaited, desired};
use crate::domain::facts::{AgentFacts, SessionFacts, StackFacts};
use crate::domain::fixtures;
use crate::domain::fleet::row::OutcomeRow;
use crate::domain::fleet::{Outcome, Reported, StoredOutcome, Target, TargetGroup};
use crate::domain::targeting::reaches;
use crate::index::labels::Slot;
use crate::index::{Changes, Freshness, Index, MatrixRequest, Reread, Snapshot};

/// Returns the group of an agent.
fn group_of(groups: Vec<TargetGroup>, slot: Slot) -> Option<Target> {
    let mut found = groups.into_iter().filter(|group| group.agents.contains(slot));
    let target = found.next().map(|group| group.target);
    assert!(found.next().is_none(), "an agent is in one group");
    target
}

/// Returns what the list of the status has for the target of an agent, if it has a row.
fn listed(snapshot: &Snapshot, stack: StackId, agent: AgentId, has_reported: bool) -> Option<Target> {
    let (stack, agent) = (snapshot.stack(stack)?, snapshot.agent(agent)?);
    let wanted = desired(agent, stack).map(|desired| (desired.sequence_id(), desired.removal));
    let target = wanted.or_else(|| awaited(agent, stack).map(|awaited| (awaited, None)));
    (target.is_some() || agent.holds(stack.id) || has_reported).then_some(target)
}

type Reports = BTreeMap<(StackId, AgentId), Reported>;

fn stored(reports: &Reports, is_wanted: impl Fn(StackId, AgentId) -> bool) -> Vec<StoredOutcome> {
    let wanted = reports.iter().filter(|((stack, agent), _)| is_wanted(*stack, *agent));
    wanted
        .map(|((stack, agent), reported)| StoredOutcome {
            stack: *stack,
            agent: *agent,
            reported: Some(*reported),
        })
        .collect()
}

/// Does what the tail does after a change of the snapshot.
fn reread(index: &Index, numbering: u64, reports: &Reports) {
    let Reread { agents, stacks } = index.take_reread();
    assert!(index.change_outcomes(numbering, &stored(reports, |stack, _| stacks.contains(&stack))));
    let agents: Vec<AgentId> = agents.into_iter().collect();
    let of_agents = stored(reports, |_, agent| agents.contains(&agent));
    assert!(index.replace_outcomes_of(numbering, &agents, &of_agents));
}

fn some_reports() -> impl Strategy<Value = Vec<((StackId, AgentId), Reported)>> {
    let outcomes = prop::sample::select(&[Outcome::Healthy, Outcome::Failed, Outcome::Removed][..]);
    let report = (0..STACKS, 0..AGENTS, 1i64..6, outcomes).prop_map(|(stack, agent, version, outcome)| {
        ((stack_id(stack), agent_id(agent)), Reported { version: SequenceId(version), outcome })
    });
    prop::collection::vec(report, 0..6)
}

proptest! {
    #[test]
    fn each_agent_is_counted_by_what_it_should_have(
        batches in prop::collection::vec(several(), 1..12),
        reporters in prop::collection::btree_set(0..AGENTS, 0..3),
    ) {
        let mut truth = Truth::new();
        let mut snapshot = truth.reloaded();
        for batch in batches {
            let changes = truth.store(&snapshot, batch);
            snapshot.apply(changes);
            let reporters: Vec<AgentId> = reporters.iter().copied().map(agent_id).collect();
            let removed = Reported { version: SequenceId(1), outcome: Outcome::Removed };
            let slots = reporters.iter().filter_map(|agent| snapshot.slot(*agent));
            let reports: Vec<_> = slots.map(|slot| (slot, Some(removed))).collect();
            let mut row = OutcomeRow::default();
            row.change(&reports, snapshot.slots(), &[]);
            for stack in (0..STACKS).filter_map(|number| snapshot.stack(stack_id(number))) {
                let usable = snapshot.usable(&stack.project);
                for agent in (0..AGENTS).filter_map(|number| snapshot.agent(agent_id(number))) {
                    let Some(slot) = snapshot.slot(agent.id) else { continue };
                    let has_reported = reporters.contains(&agent.id);
                    let expected = listed(&snapshot, stack.id, agent.id, has_reported);
                    let all = group_of(snapshot.all_groups(stack, &snapshot.everyone(), &row), slot);
                    prop_assert_eq!(all, expected, "{} on {}", stack.id, agent.id);
                    // The matrix has the agents that the stack reaches.
                    let is_shown = stack.has_object() && usable.contains(slot) && reaches(agent, stack);
                    let shown = group_of(snapshot.target_groups(stack, &usable, &row), slot);
                    prop_assert_eq!(shown, expected.filter(|_| is_shown), "{} on {}", stack.id, agent.id);
                }
            }
        }
    }

    #[test]
    fn a_change_that_leaves_the_revision_changes_no_view(batches in prop::collection::vec(several(), 1..16)) {
        let index = Index::new(InstallationId::generate());
        let mut truth = Truth::new();
        index.replace(truth.reloaded(), Freshness::unread());
        let shown = || -> Vec<_> {
            let request = |project: &str| MatrixRequest {
                project: project.to_owned(),
                by: Some("env".to_owned()),
                selector: None,
            };
            PROJECTS.iter().map(|project| (index.matrix(&request(project)), index.fleet_counts(project).agents)).collect()
        };
        for batch in batches {
            let (before, revision) = (shown(), index.outcomes().revision());
            let changes = truth.store(&index.snapshot(), batch);
            index.apply(changes, Freshness::unread());
            if index.outcomes().revision() == revision {
                prop_assert_eq!(shown(), before);
            }
        }
    }

    #[test]
    fn what_an_agent_has_reported_follows_it_to_other_slots(
        batches in prop::collection::vec((several(), some_reports(), any::<bool>(), prop::bool::weighted(0.2)), 1..16)
    ) {
        let index = Index::new(InstallationId::generate());
        let (mut truth, mut reports) = (Truth::new(), Reports::new());
        index.replace(truth.reloaded(), Freshness::unread());
        for (batch, new, abandons, is_reloaded) in batches {
            let changes = truth.store(&index.snapshot(), batch);
            index.apply(changes, Freshness::unread());
            if is_reloaded {
                let before = index.outcomes().numbering();
                index.replace(truth.reloaded(), Freshness::unread());
                prop_assert!(!index.change_outcomes(before, &stored(&reports, |_, _| true)), "other slots");
                let now = index.outcomes().numbering();
                prop_assert!(index.change_outcomes(now, &stored(&reports, |_, _| true)));
            }
            // Reports go with the agent; those of an agent that is inactive may be deleted alone.
            reports.retain(|(_, agent), _| truth.agents.contains_key(agent));
            let asked = index.take_reread();
            reports.retain(|(_, agent), _| !(abandons && asked.agents.contains(agent)));
            index.give_back_reread(asked);
            let numbering = index.outcomes().numbering();
            reread(&index, numbering, &reports);
            let new: Reports = new.into_iter().filter(|((_, agent), _)| truth.agents.contains_key(agent)).collect();
            prop_assert!(index.change_outcomes(numbering, &stored(&new, |_, _| true)));
            reports.extend(new);
            // A rollout is looked at in parts.
            for whole in (0..STACKS).filter_map(|number| index.whole_stack(stack_id(number))) {
                for agent in truth.agents.keys() {
                    let has_reported = reports.contains_key(&(whole.view.id, *agent));
                    let snapshot = index.snapshot();
                    let Some(slot) = snapshot.slot(*agent) else { continue };
                    let here = group_of(whole.view.groups.clone(), slot);
                    prop_assert_eq!(here, listed(&snapshot, whole.view.id, *agent, has_reported));
                }
            }
            let (snapshot, outcomes) = (index.snapshot(), index.outcomes());
            for stack in (0..STACKS).map(stack_id).filter(|stack| snapshot.stack(*stack).is_some()) {
                let row = outcomes.row(stack);
                for agent in truth.agents.keys() {
                    let here = snapshot.slot(*agent).and_then(|slot| row.reported(slot));
                    let there = reports.get(&(stack, *agent)).copied();
                    prop_assert_eq!(here, there, "{} on {}", stack, agent);
                }
            }
        }
    }
}

#[test]
fn a_session_is_no_change_of_a_view() {
    let index = Index::new(InstallationId::generate());
    let agent = fixtures::agent();
    let apply = |agent: &AgentFacts| {
        index.apply(Changes { agents: vec![agent.clone()], ..Changes::default() }, Freshness::unread());
        index.outcomes().revision()
    };
    let before = apply(&agent);
    let opened = AgentFacts { session: SessionFacts { count: 2, ..agent.session }, ..agent };
    assert_eq!(apply(&opened.clone().holding(vec![stack_id(1)])), before);
    assert_ne!(apply(&AgentFacts { status: AgentStatus::Inactive, ..opened }), before);
}

#[test]
fn a_stack_that_the_index_drops_is_not_read_again() {
    let index = Index::new(InstallationId::generate());
    let mut deleted = StackFacts::new("default".into(), stack_id(1), "gone".into());
    deleted.deleted = true;
    let known = StackFacts::new("default".into(), stack_id(2), "web".into());
    let changes = Changes { stacks: vec![deleted, known.clone()], ..Changes::default() };
    index.apply(changes, Freshness::unread());
    assert_eq!(index.take_reread().stacks, [known.id].into());
}

#[test]
fn agents_that_may_have_lost_their_reports_are_read_again() {
    let index = Index::new(InstallationId::generate());
    let agent = fixtures::agent();
    let apply = |agent: &AgentFacts| {
        index.apply(Changes { agents: vec![agent.clone()], ..Changes::default() }, Freshness::unread());
        !index.take_reread().agents.is_empty()
    };
    assert!(!apply(&agent), "a new agent");
    assert!(apply(&agent), "notified without a change");
    let opened = AgentFacts { session: SessionFacts { count: 2, ..agent.session }, ..agent };
    assert!(!apply(&opened));
    assert!(apply(&AgentFacts { public_key: [1; 32], ..opened }), "another key");
}

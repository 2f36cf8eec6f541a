//! How far the rollout of a stack is: its agents, judged by their reports and their presence.

use std::collections::HashMap;

use brokkr_api::report::Transition;
use brokkr_api::windows::Opening;
use brokkr_api::{Selector, SequenceId, StackId};
use jiff::Timestamp;
use roaring::RoaringBitmap;

use super::Snapshot;
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::release::{Release, Widening, place, place_of};
use crate::domain::rollout::survey::{Contacts, Evidence, Extent, Member, Survey};
use crate::domain::rollout::verdict::Contact;
use crate::domain::targeting::targeted_before;
use crate::domain::windows::Lane;

impl Snapshot {
    /// Returns the stacks with a rollout that is open.
    #[must_use]
    pub fn rolling(&self) -> Vec<(String, StackId)> {
        let is_open = |stack: &&StackFacts| {
            let widening = stack.widening().map(|widening| &widening.release);
            stack.releases().last().into_iter().chain(widening).any(|release| release.open)
        };
        let stacks = self.rolling.iter().filter_map(|id| self.stacks.get(id)).filter(is_open);
        stacks.map(|stack| (stack.project.clone(), stack.id)).collect()
    }

    /// Judges the agents of the stack for the wave with this selector. Returns none if this index does not know the rollout with
    /// this sequence id and revision yet: then it may not know the targets either.
    #[must_use]
    pub fn survey(
        &self,
        stack: StackId,
        rollout: (SequenceId, i64),
        wave: Option<&Selector>,
        evidence: &Evidence<'_>,
        now: Timestamp,
    ) -> Option<Survey> {
        let stack = self.stacks.get(&stack)?;
        let of_version = stack.releases().last();
        let of_version =
            of_version.filter(|release| (release.object.sequence_id, release.revision) == rollout);
        let widening = stack.widening();
        let widening = widening.filter(|widening| (widening.key, widening.release.revision) == rollout);
        let release = of_version.or(widening.map(|widening| &widening.release))?;
        let mut survey = Survey::default();
        let mut members = self.reach(stack) & &self.active;
        // The agents that had the stack before it was widened have the version already.
        if let Some(Widening { had, .. }) = widening.filter(|_| of_version.is_none()) {
            members -= self.had(had);
        }
        // Most agents of a large fleet wait for the version and are connected. Their facts need not be looked at, if only their
        // places matter.
        let is_plain = wave.is_none() && stack.windows.is_empty() && release.windows.is_empty();
        let is_plain = is_plain && !release.object.is_deletion_marker;
        let mark = release.only_mark().filter(|_| is_plain).unwrap_or(u64::MAX);
        let absent: RoaringBitmap =
            evidence.contacts.absent.keys().filter_map(|agent| self.slot(*agent)).collect();
        let special = absent | self.suspended_by(stack.suspensions.iter());
        let mut judge = Judge::new(stack, release, wave, evidence, now);
        for slot in &members - &special {
            match place_of(self.random[slot as usize], release.seed) {
                place if place > mark => survey.add_candidate(place),
                _ => judge.member(self.at(slot)).iter().for_each(|member| survey.add(member, now)),
            }
        }
        for slot in &members & &special {
            judge.member(self.at(slot)).iter().for_each(|member| survey.add(member, now));
        }
        Some(survey)
    }
}

/// Judges the agents of one rollout.
struct Judge<'a> {
    stack: &'a StackFacts,
    release: &'a Release,
    wave: Option<&'a Selector>,
    evidence: &'a Evidence<'a>,
    now: Timestamp,
    /// Since when all of the stack's targets are its targets: what selects each agent would take too long to find.
    targeted: Timestamp,
    /// By what the windows of now have in common.
    openings: HashMap<Lane, Opening>,
}

impl<'a> Judge<'a> {
    fn new(
        stack: &'a StackFacts,
        release: &'a Release,
        wave: Option<&'a Selector>,
        evidence: &'a Evidence<'a>,
        now: Timestamp,
    ) -> Self {
        let selectors = stack.selectors.iter().map(|target| target.since);
        let targeted =
            stack.targets.iter().map(|target| target.since).chain(selectors).max().unwrap_or_default();
        Self { stack, release, wave, evidence, now, targeted, openings: HashMap::new() }
    }

    /// Returns what is known about an agent; none if the rollout has nothing to do there.
    fn member(&mut self, agent: &AgentFacts) -> Option<Member> {
        let Self { stack, release, wave, evidence, now, targeted, .. } = *self;
        let is_deletion = release.object.is_deletion_marker;
        let report = evidence.reports.get(&agent.id);
        // An agent that does not have the stack has nothing to delete.
        if is_deletion && !agent.holds(stack.id) && report.is_none() {
            return None;
        }
        // It has removed the stack, and gets it again.
        let report = report.filter(|report| is_deletion || report.transition != Transition::Removed);
        let place = place(agent.id, release.seed);
        let lanes = release.lanes(agent, stack);
        // By the windows of now, which the agent has as well.
        let object = &release.object;
        let is_urgent = object.is_urgent && targeted_before(agent, stack, object.published_at);
        let shared = stack.windows.lane(agent, &stack.project).filter(|_| !is_urgent);
        let opening = shared.map_or(Opening::Open { since: None }, |shared| {
            *self.openings.entry(shared).or_insert_with(|| {
                let schedule = stack.windows.schedule(agent, &stack.project).unwrap_or_default();
                schedule.at(now)
            })
        });
        let released_at = evidence.raises.released_at(place, lanes, |selector| agent.matches(selector));
        // An agent that has begun the version counts, also if it would not get it with its present labels or windows.
        Some(Member {
            place,
            in_wave: wave.is_none_or(|selector| agent.matches(selector)),
            lanes,
            opening,
            suspended: extent(agent, stack),
            released_at: released_at.or_else(|| report.map(|report| report.since)),
            contact: contact(agent, evidence.contacts, targeted.max(evidence.watched_since), opening),
            report: report.cloned(),
        })
    }
}

fn extent(agent: &AgentFacts, stack: &StackFacts) -> Option<Extent> {
    let mut extents = stack.suspensions_on(agent).map(|one| one.object.is_none()).peekable();
    extents.peek()?;
    Some(if extents.any(|is_whole| is_whole) { Extent::Stack } else { Extent::Object })
}

/// Returns whether the agent is connected, and since when it could have begun what was released to it, which was not before `able_since`.
pub(super) fn contact(
    agent: &AgentFacts,
    contacts: &Contacts,
    able_since: Timestamp,
    opening: Opening,
) -> Contact {
    match contacts.absent.get(&agent.id) {
        Some(contact) => *contact,
        None => {
            let returned = contacts.returned.get(&agent.id).copied();
            // Labels also change when an agent joins.
            let since = able_since.max(agent.labels_changed_at);
            let opened = if let Opening::Open { since } = opening { since } else { None };
            Contact::Present(returned.max(opened).max(Some(since)))
        }
    }
}

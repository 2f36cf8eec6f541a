//! Which agents have another target state after a change: found by bitmaps and, where these cannot tell, by comparing
//! both envelopes. All other agents keep their cached envelope and are not woken.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use brokkr_api::InstallationId;
use brokkr_api::envelope::TargetStack;
use roaring::RoaringBitmap;

use super::Snapshot;
use crate::domain::envelope::{desired, envelope, target};
use crate::domain::facts::{AgentFacts, StackFacts, SuspensionFacts};
use crate::domain::grants::ProjectGrants;
use crate::domain::release::{Release, place_of, released_to};
use crate::domain::windows::Windows;
use crate::index::labels::Slot;

impl Snapshot {
    /// Returns whether the agent's envelope or its permission to poll changes, or it is asked to fetch an upgrade.
    pub(super) fn affected_by_agent(&self, before: Option<&AgentFacts>, after: &AgentFacts) -> bool {
        let Some(before) = before else { return true };
        let labelled = AgentFacts {
            name: after.name.clone(),
            labels: after.labels.clone(),
            labels_changed_at: after.labels_changed_at,
            upgrade: after.upgrade.clone(),
            ..before.clone()
        };
        if labelled != *after {
            return true;
        }
        let asked = |agent: &AgentFacts| self.wanted_upgrade(agent).map(|upgrade| upgrade.id);
        if asked(after).is_some() && asked(before) != asked(after) {
            return true;
        }
        before != after && self.entries(before) != self.entries(after)
    }

    fn entries(&self, agent: &AgentFacts) -> Vec<TargetStack> {
        envelope(InstallationId(uuid::Uuid::nil()), agent, self.candidates(agent), None).stacks
    }

    /// Returns exactly the agents with another entry for the stack in their envelope.
    pub(super) fn affected_by_stack(&self, before: Option<&StackFacts>, after: &StackFacts) -> RoaringBitmap {
        let Some(before) = before else { return self.recipients(after) };
        if before == after {
            return RoaringBitmap::new();
        }
        let mut approved = before.clone();
        approved.approvals.clone_from(&after.approvals);
        if approved == *after {
            let given: Vec<_> =
                symmetric_difference(before.approvals.iter(), after.approvals.iter()).collect();
            let mut recipients = self.recipients(after);
            recipients.retain(|slot| {
                let agent = self.at(slot);
                let wanted = desired(agent, after).map(|desired| desired.sequence_id());
                given.iter().any(|one| one.is_for(agent.id) && wanted == Some(one.approval.sequence_id))
            });
            return recipients;
        }
        let mut suspended = before.clone();
        suspended.suspensions.clone_from(&after.suspensions);
        if suspended == *after {
            let mut concerned =
                self.suspended_by(before.suspensions.iter().filter(|one| !after.suspensions.contains(one)));
            concerned |=
                self.suspended_by(after.suspensions.iter().filter(|one| !before.suspensions.contains(one)));
            return concerned & self.recipients(after);
        }
        let mut tuned = before.clone();
        tuned.health_rules.clone_from(&after.health_rules);
        tuned.drift = after.drift;
        if tuned == *after {
            return self.recipients(after);
        }
        let mut released = before.clone();
        released.release_as(after);
        if released == *after {
            if !before.has_rollout() && !after.has_rollout() {
                return self.recipients(before) | self.recipients(after);
            }
            return self.affected_by_release(before, after);
        }
        let mut retargeted = before.clone();
        retargeted.targets.clone_from(&after.targets);
        retargeted.selectors.clone_from(&after.selectors);
        if retargeted != *after || after.has_rollout() {
            let mut recipients = self.recipients(before) | self.recipients(after);
            recipients.retain(|slot| target(self.at(slot), before) != target(self.at(slot), after));
            return recipients;
        }
        if !after.has_object() {
            return RoaringBitmap::new();
        }
        // Agents that gain or lose the stack are affected. Agents that keep it, and those that hold it although it does not reach
        // them, are affected only if the entry differs.
        let (reached_before, reached_after) = (self.reach(before), self.reach(after));
        let mut same = &reached_before & &reached_after;
        if let Some(holders) = self.holders.get(&after.id) {
            same |= holders - &reached_before - &reached_after;
        }
        let mut kept = self.touched(before, after);
        kept &= same;
        kept &= &self.active;
        kept.retain(|slot| self.gets_other(slot, before, after));
        ((reached_before ^ reached_after) & &self.active) | kept
    }

    /// Returns the agents that one of these suspensions is for.
    pub(super) fn suspended_by<'a>(
        &self,
        suspensions: impl Iterator<Item = &'a SuspensionFacts>,
    ) -> RoaringBitmap {
        let mut agents = RoaringBitmap::new();
        for suspension in suspensions {
            match (suspension.agent, &suspension.selector) {
                (Some(agent), _) => agents.extend(self.slot(agent)),
                (None, Some(selector)) => agents |= self.select(selector),
                (None, None) => agents |= &self.active,
            }
        }
        agents
    }

    /// Returns whether the agent has to do something else about the stack.
    fn gets_other(&self, slot: Slot, before: &StackFacts, after: &StackFacts) -> bool {
        desired(self.at(slot), before) != desired(self.at(slot), after)
    }

    /// Returns exactly the agents that get another version or deletion, where the targets are the same. A step of a rollout
    /// looks at every agent of the stack, so this compares no more than necessary.
    fn affected_by_release(&self, before: &StackFacts, after: &StackFacts) -> RoaringBitmap {
        let differs = |slot: Slot| self.gets_other(slot, before, after);
        let mut members = (self.reach(before) | self.reach(after)) & &self.active;
        let mut others = RoaringBitmap::new();
        if let Some(holders) = self.holders.get(&after.id) {
            others = (holders & &self.active) - &members;
        }
        others.retain(differs);
        if let Some(raised) = raised(before, after) {
            let is_reached =
                |slot: &Slot| raised.contains(&place_of(self.random[*slot as usize], raised.seed));
            return members.iter().filter(is_reached).collect::<RoaringBitmap>() | others;
        }
        let is_deletion = |release: &Release| release.object.is_deletion_marker;
        let is_deleting = [before, after].iter().any(|stack| stack.releases().iter().any(is_deletion));
        members.retain(|slot| {
            let agent = self.at(slot);
            match (released_to(agent, before), released_to(agent, after)) {
                (Some(old), Some(new)) if !is_deleting && !new.is_deletion_marker => {
                    old.sequence_id != new.sequence_id
                }
                // An agent that holds the stack keeps a withdrawn version.
                (None, None) => agent.holds(after.id) && differs(slot),
                // What has to be removed or kept depends on what an agent holds, too.
                _ => differs(slot),
            }
        });
        members | others
    }

    /// Returns the active agents with the stack in their envelope.
    fn recipients(&self, stack: &StackFacts) -> RoaringBitmap {
        if !stack.has_object() {
            return RoaringBitmap::new();
        }
        let mut recipients = self.reach(stack);
        if let Some(holders) = self.holders.get(&stack.id) {
            recipients |= holders;
        }
        recipients &= &self.active;
        if stack.has_rollout() {
            recipients.retain(|slot| desired(self.at(slot), stack).is_some());
        }
        recipients
    }

    /// Returns the agents that match a target which only one of the two versions of the stack has.
    fn touched(&self, before: &StackFacts, after: &StackFacts) -> RoaringBitmap {
        let selectors = symmetric_difference(before.selectors.iter(), after.selectors.iter());
        let targets = symmetric_difference(before.targets.iter(), after.targets.iter());
        let mut touched = RoaringBitmap::new();
        selectors.for_each(|target| touched |= self.select(&target.selector));
        touched.extend(targets.filter_map(|target| self.slot(target.agent)));
        touched
    }

    /// Returns exactly the agents with another entry for a stack of the project in their envelope.
    pub(super) fn affected_by_grants(
        &self,
        project: &str,
        before: &ProjectGrants,
        after: &ProjectGrants,
    ) -> RoaringBitmap {
        let mut touched = match (before, after) {
            (ProjectGrants::Listed(before), ProjectGrants::Listed(after)) => {
                let mut touched = RoaringBitmap::new();
                let changed = before
                    .iter()
                    .filter(|grant| !after.contains(grant))
                    .chain(after.iter().filter(|grant| !before.contains(grant)));
                changed.for_each(|grant| touched |= self.select(&grant.selector));
                touched
            }
            _ => self.by_label.everyone().clone(),
        };
        touched &= &self.active;
        touched.retain(|slot| before.on(self.at(slot)) != after.on(self.at(slot)));
        if touched.is_empty() {
            return touched;
        }
        let mut have_stacks = RoaringBitmap::new();
        for stack in self.stacks.values().filter(|stack| stack.project == project && stack.has_object()) {
            let mut have = self.targeted(stack);
            if let Some(holders) = self.holders.get(&stack.id) {
                have |= holders;
            }
            if stack.has_rollout() {
                let (mut old, mut new) = (stack.clone(), stack.clone());
                (old.grants, new.grants) = (Arc::new(before.clone()), Arc::new(after.clone()));
                have &= &touched;
                have.retain(|slot| self.gets_other(slot, &old, &new));
            }
            have_stacks |= have;
        }
        touched & have_stacks
    }
}

/// The places between two marks of a rollout.
struct Raised {
    seed: u64,
    above: u64,
    upto: u64,
}

impl Raised {
    fn contains(&self, place: &u64) -> bool {
        (self.above + 1..=self.upto).contains(place)
    }
}

/// Returns by how much a step has raised the mark, if it has done nothing else and only the places of the agents matter. Nearly every
/// step is such a step.
fn raised(before: &StackFacts, after: &StackFacts) -> Option<Raised> {
    let ([earlier @ .., old], [same @ .., new]) = (before.releases(), after.releases()) else { return None };
    let is_step = before.has_base_of(after)
        && before.widening() == after.widening()
        && earlier == same
        && (old.object, old.seed) == (new.object, new.seed);
    let deletes = after.releases().iter().any(|release| release.object.is_deletion_marker);
    let has_lanes = !new.windows.is_empty() || !after.windows.is_empty();
    if !is_step || !old.open || !new.open || deletes || has_lanes {
        return None;
    }
    let (above, upto) = (old.only_mark()?, new.only_mark()?);
    (above < upto).then_some(Raised { seed: new.seed, above, upto })
}

/// Which agents other windows concern.
impl Snapshot {
    /// Returns exactly the agents that may begin a version of one of their stacks at other times.
    pub(super) fn affected_by_windows(&self, after: &Arc<Windows>) -> RoaringBitmap {
        let mut selected = RoaringBitmap::new();
        self.windows.changed(after).for_each(|window| selected |= self.select(&window.selector));
        selected &= &self.active;
        let mut of_project: HashMap<&str, RoaringBitmap> = HashMap::new();
        let mut affected = RoaringBitmap::new();
        for stack in self.stacks.values().filter(|stack| stack.has_object()) {
            let project = &stack.project;
            let touched = of_project.entry(project).or_insert_with(|| {
                let differs = |slot: &Slot| {
                    self.windows.lane(self.at(*slot), project) != after.lane(self.at(*slot), project)
                };
                selected.iter().filter(differs).collect()
            });
            let mut here = self.reach(stack);
            if let Some(holders) = self.holders.get(&stack.id) {
                here |= holders;
            }
            here &= &*touched;
            // The windows do not apply to what is urgent, and decide to whom a version is released.
            if stack.has_rollout() || stack.newest().is_some_and(|newest| newest.is_urgent) {
                let mut changed = stack.clone();
                changed.windows = Arc::clone(after);
                here.retain(|slot| self.gets_other(slot, stack, &changed));
            }
            affected |= here;
        }
        affected
    }
}

/// Returns the items that only one of the two has.
fn symmetric_difference<'a, T: Eq + Hash + 'a>(
    one: impl Iterator<Item = &'a T> + Clone,
    other: impl Iterator<Item = &'a T> + Clone,
) -> impl Iterator<Item = &'a T> {
    let (in_one, in_other): (HashSet<&T>, HashSet<&T>) = (one.clone().collect(), other.clone().collect());
    let only_one: Vec<&T> = one.filter(|item| !in_other.contains(item)).collect();
    only_one.into_iter().chain(other.filter(move |item| !in_one.contains(item)))
}

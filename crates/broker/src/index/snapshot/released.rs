//! Which agents get a version of a rollout, as bitmaps: the same as `domain/release` has for one agent. Only places are looked at for each
//! agent.

use brokkr_api::Selector;
use roaring::RoaringBitmap;

use super::Snapshot;
use crate::domain::facts::StackFacts;
use crate::domain::release::{Clause, EarlierTargets, Release, Widening, place_of};
use crate::domain::targeting::targeted_before;
use crate::domain::windows::{Lane, Lanes};

impl Snapshot {
    /// Returns those of these agents that get the version.
    pub(super) fn released(
        &self,
        stack: &StackFacts,
        release: &Release,
        agents: &RoaringBitmap,
    ) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        if release.open {
            let lanes = AgentsByLane::new(self, stack, release, agents);
            for clause in &release.clauses {
                found |= self.up_to_mark(release, clause, lanes.of(clause.lanes) - &found);
            }
        }
        found
    }

    /// Returns those of these agents that get the base.
    pub(super) fn widened(
        &self,
        stack: &StackFacts,
        widening: &Widening,
        agents: &RoaringBitmap,
    ) -> RoaringBitmap {
        let had = self.had(&widening.had) & agents;
        self.released(stack, &widening.release, &(agents - &had)) | had
    }

    /// Returns those of these agents to which a deletion is or was released last.
    pub(super) fn deleted_from(&self, stack: &StackFacts, mut agents: RoaringBitmap) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        let Some(first) = stack.releases().iter().position(|release| release.object.is_deletion_marker)
        else {
            return found;
        };
        for release in stack.releases()[first..].iter().rev() {
            let mut included = RoaringBitmap::new();
            for clause in &release.clauses {
                included |= self.up_to_mark(release, clause, &agents - &included);
            }
            agents -= &included;
            if release.object.is_deletion_marker {
                found |= included;
            }
        }
        found
    }

    /// Returns the agents of targets.
    pub(super) fn had(&self, had: &EarlierTargets) -> RoaringBitmap {
        let mut found = self.with_ids(&had.agents);
        had.selectors.iter().for_each(|selector| found |= self.select(selector));
        found
    }

    /// Returns those of these agents that a clause includes.
    fn up_to_mark(&self, release: &Release, clause: &Clause, mut agents: RoaringBitmap) -> RoaringBitmap {
        if let Some(selector) = &clause.selector {
            agents &= self.select(selector);
        }
        if clause.upto == u64::MAX {
            return agents;
        }
        let is_released = |slot: &u32| place_of(self.random[*slot as usize], release.seed) <= clause.upto;
        agents.iter().filter(is_released).collect()
    }
}

/// Agents by their lanes in a rollout.
struct AgentsByLane<'a> {
    snapshot: &'a Snapshot,
    stack: &'a StackFacts,
    release: &'a Release,
    begun: Vec<(Option<Lane>, RoaringBitmap)>,
    /// None if they are the same as when it began.
    now: Option<Vec<(Option<Lane>, RoaringBitmap)>>,
}

impl<'a> AgentsByLane<'a> {
    fn new(
        snapshot: &'a Snapshot,
        stack: &'a StackFacts,
        release: &'a Release,
        agents: &RoaringBitmap,
    ) -> Self {
        let select = |selector: &Selector| snapshot.select(selector);
        let begun = release.windows.partition(agents, &stack.project, select);
        let is_changed = release.windows != *stack.windows;
        let now = is_changed.then(|| stack.windows.partition(agents, &stack.project, select));
        Self { snapshot, stack, release, begun, now }
    }

    /// Returns the agents of these lanes.
    fn of(&self, lanes: Lanes) -> RoaringBitmap {
        let begun = of_lane(&self.begun, lanes.begun);
        let now = of_lane(self.now.as_ref().unwrap_or(&self.begun), lanes.now);
        let both = &begun & &now;
        if !self.release.object.is_urgent {
            return both;
        }
        // For those that were targets before, the windows of now are those of then.
        if lanes.begun == lanes.now {
            &both | self.targeted_before(begun - now)
        } else {
            &both - self.targeted_before(both.clone())
        }
    }

    fn targeted_before(&self, agents: RoaringBitmap) -> RoaringBitmap {
        let published = self.release.object.published_at;
        let is_early = |slot: &u32| targeted_before(self.snapshot.at(*slot), self.stack, published);
        agents.into_iter().filter(is_early).collect()
    }
}

fn of_lane(parts: &[(Option<Lane>, RoaringBitmap)], lane: Option<Lane>) -> RoaringBitmap {
    let mut found = RoaringBitmap::new();
    parts.iter().filter(|(of, _)| *of == lane).for_each(|(_, members)| found |= members);
    found
}

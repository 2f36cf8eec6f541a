//! Digests of slices of the snapshot, computed from memory, to be compared with the database's.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use uuid::Uuid;

use super::Snapshot;
use crate::domain::fingerprint::{Fingerprint, agent_line, stack_line};

impl Snapshot {
    /// Computes the digests of the agents and non-deleted stacks with ids that end in one of these bytes, except `without`.
    #[must_use]
    pub fn fingerprints(
        &self,
        slices: &RangeInclusive<u8>,
        without: &HashSet<Uuid>,
    ) -> (Fingerprint, Fingerprint) {
        let is_included = |id: &Uuid| slices.contains(&slice(id)) && !without.contains(id);
        let (mut agents, mut stacks) = (Fingerprint::default(), Fingerprint::default());
        let slots = slices.clone().filter_map(|byte| self.slices.get(usize::from(byte))).flatten();
        for agent in slots.map(|slot| self.at(slot)).filter(|agent| is_included(&agent.id.0)) {
            agents.add(&agent_line(agent));
        }
        for stack in self.stacks.values().filter(|stack| !stack.deleted && is_included(&stack.id.0)) {
            stacks.add(&stack_line(stack));
        }
        (agents, stacks)
    }
}

/// Returns the slice of an id: its last byte, which is random.
pub(super) fn slice(id: &Uuid) -> u8 {
    id.as_bytes()[15]
}

//! Each agent once, by its worst stack.

use brokkr_api::fleet::FleetAgents;
use roaring::RoaringBitmap;

use super::{Condition, StackView, condition};

/// Of an agent that no stack reaches.
const UNREACHED: u8 = 0;

/// Adds up one stack after the other, so that not all of them have to be in memory.
#[derive(Debug)]
pub struct SummaryBuilder {
    /// By slot: one more than the worst condition.
    worst: Vec<u8>,
    stacks: u64,
}

impl SummaryBuilder {
    /// `slots` is the number of slots in the index.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { worst: vec![UNREACHED; slots], stacks: 0 }
    }

    pub fn add(&mut self, stack: &StackView) {
        self.stacks += 1;
        for group in &stack.groups {
            let mut ranks = [rank(Condition::Pending); 256];
            for (byte, reported) in stack.row.meanings() {
                ranks[usize::from(byte)] = rank(condition(group.target, reported));
            }
            stack.row.visit(&group.agents, |slot, byte| {
                if let Some(worst) = self.worst.get_mut(slot as usize) {
                    *worst = (*worst).max(ranks[usize::from(byte)]);
                }
            });
        }
    }

    /// Returns the number of stacks, and the agents that any of them reaches.
    #[must_use]
    pub fn finish(mut self, silent: &RoaringBitmap) -> (u64, FleetAgents) {
        let mut counts = FleetAgents::default();
        for slot in silent {
            if let Some(worst) = self.worst.get_mut(slot as usize).filter(|worst| **worst != UNREACHED) {
                *worst = UNREACHED;
                counts.silent += 1;
            }
        }
        for worst in self.worst {
            match worst {
                UNREACHED => {}
                worst if worst == rank(Condition::OnIntent) => counts.on_intent += 1,
                worst if worst == rank(Condition::Unknown) => counts.unknown += 1,
                worst if worst == rank(Condition::Pending) => counts.pending += 1,
                worst if worst == rank(Condition::Blocked) => counts.blocked += 1,
                _ => counts.failing += 1,
            }
        }
        let others = counts.unknown + counts.pending + counts.blocked + counts.failing;
        counts.agents = counts.on_intent + counts.silent + others;
        (self.stacks, counts)
    }
}

fn rank(condition: Condition) -> u8 {
    condition as u8 + 1
}

//! What each agent has last reported about one stack: a byte for each agent, by its slot in the index.
//!
//! The lower three bits are the outcome, the upper five the number of a version in a table of the stack. Number zero stands for all
//! versions without a number of their own: if more than 31 versions are in use at the same time, the oldest ones share it. They
//! count as older than every other version.

use std::collections::BTreeMap;

use brokkr_api::SequenceId;
use roaring::RoaringBitmap;

use super::{Outcome, Reported};

const OUTCOME_BITS: u8 = 3;
const OUTCOME_MASK: u8 = 0b111;
/// Five bits.
const NUMBERS: usize = 32;
/// The number of all versions without a number of their own.
const OTHERS: usize = 0;
/// Sequence ids are positive, so that this one is older than all.
const OLDER_THAN_ALL: SequenceId = SequenceId(0);
/// A byte for every slot is used once one in this many has reported: before, a stack with few agents would take as much memory as
/// one that reaches all.
const DENSE_FROM: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRow {
    /// By number.
    versions: Vec<Version>,
    pairs: Pairs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    id: SequenceId,
    /// The agents that have reported it last.
    agents: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pairs {
    /// Sorted by slot. No byte is zero.
    Sparse { slots: Vec<u32>, bytes: Vec<u8> },
    /// By slot; zero where nothing was reported.
    Dense(Vec<u8>),
}

impl Default for OutcomeRow {
    fn default() -> Self {
        Self {
            versions: vec![Version { id: OLDER_THAN_ALL, agents: 0 }],
            pairs: Pairs::Sparse { slots: Vec::new(), bytes: Vec::new() },
        }
    }
}

impl OutcomeRow {
    /// Returns what the agent in this slot has last reported.
    #[must_use]
    pub fn reported(&self, slot: u32) -> Option<Reported> {
        self.decode(self.pairs.byte(slot))
    }

    /// Returns what a byte of this row means.
    #[must_use]
    pub fn decode(&self, byte: u8) -> Option<Reported> {
        let outcome = Outcome::from_bits(byte & OUTCOME_MASK)?;
        let version = self.versions.get(number_of(byte)).map_or(OLDER_THAN_ALL, |version| version.id);
        Some(Reported { version, outcome })
    }

    /// Returns every byte that may be in the row, and what it means.
    pub fn meanings(&self) -> impl Iterator<Item = (u8, Option<Reported>)> {
        let end = u8::try_from(self.bytes() - 1).unwrap_or(u8::MAX);
        (0..=end).map(|byte| (byte, self.decode(byte)))
    }

    /// Returns the number of different bytes that may be in the row: each is below it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.versions.len() << OUTCOME_BITS
    }

    /// Applies the reports of these slots, of which each is named once. `slots` is the number of slots in the index. The versions in
    /// `kept` are the last ones to lose their numbers: they are those that agents should have.
    pub fn change(&mut self, changes: &[(u32, Option<Reported>)], slots: usize, kept: &[SequenceId]) {
        for (slot, _) in changes {
            let before = self.pairs.byte(*slot);
            if before != 0 {
                self.versions[number_of(before)].agents -= 1;
            }
        }
        // All versions get their numbers before any byte is made: a number that is reused is in no byte that stays.
        let mut added: BTreeMap<SequenceId, u32> = BTreeMap::new();
        for reported in changes.iter().filter_map(|(_, reported)| reported.as_ref()) {
            *added.entry(reported.version).or_default() += 1;
        }
        for (version, agents) in added {
            let number = self.number_for(version, kept);
            self.versions[number].agents += agents;
        }
        let mut bytes: Vec<(u32, u8)> = changes
            .iter()
            .map(|(slot, reported)| (*slot, reported.map_or(0, |reported| self.encode(reported))))
            .collect();
        bytes.sort_unstable();
        self.pairs.put(&bytes, slots);
    }

    /// Calls `each` with every one of these agents and its byte.
    pub fn visit(&self, agents: &RoaringBitmap, mut each: impl FnMut(u32, u8)) {
        match &self.pairs {
            Pairs::Dense(bytes) => {
                for slot in agents {
                    each(slot, bytes.get(slot as usize).copied().unwrap_or_default());
                }
            }
            Pairs::Sparse { slots, bytes } => {
                let mut at = 0;
                for slot in agents {
                    while slots.get(at).is_some_and(|other| *other < slot) {
                        at += 1;
                    }
                    let is_here = slots.get(at) == Some(&slot);
                    each(slot, if is_here { bytes[at] } else { 0 });
                }
            }
        }
    }

    /// Returns the bytes by slot, if the row has one for nearly every slot.
    #[must_use]
    pub fn dense(&self) -> Option<&[u8]> {
        match &self.pairs {
            Pairs::Dense(bytes) => Some(bytes),
            Pairs::Sparse { .. } => None,
        }
    }

    /// Returns the agents that have reported on the stack.
    #[must_use]
    pub fn reporters(&self) -> RoaringBitmap {
        match &self.pairs {
            Pairs::Sparse { slots, .. } => slots.iter().copied().collect(),
            Pairs::Dense(bytes) => {
                (0u32..).zip(bytes).filter(|(_, byte)| **byte != 0).map(|(slot, _)| slot).collect()
            }
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.versions.iter().all(|version| version.agents == 0)
    }

    /// Returns the size in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let pairs = match &self.pairs {
            Pairs::Sparse { slots, bytes } => slots.capacity() * size_of::<u32>() + bytes.capacity(),
            Pairs::Dense(bytes) => bytes.capacity(),
        };
        size_of::<Self>() + self.versions.capacity() * size_of::<Version>() + pairs
    }

    fn encode(&self, reported: Reported) -> u8 {
        let number = self.find(reported.version).unwrap_or(OTHERS);
        (u8::try_from(number).unwrap_or_default() << OUTCOME_BITS) | reported.outcome as u8
    }

    fn find(&self, version: SequenceId) -> Option<usize> {
        self.versions.iter().position(|known| known.id == version)
    }

    /// Returns the number of the version, which gets one if it has none: a new one, one that no agent uses, or that of the oldest
    /// version. If it is older than all that have a number, it gets none of its own.
    fn number_for(&mut self, version: SequenceId, kept: &[SequenceId]) -> usize {
        if let Some(number) = self.find(version) {
            return number;
        }
        let entry = Version { id: version, agents: 0 };
        if self.versions.len() < NUMBERS {
            self.versions.push(entry);
            return self.versions.len() - 1;
        }
        let is_unused = |number: &usize| self.versions[*number].agents == 0;
        let number = (1..NUMBERS).find(is_unused).unwrap_or_else(|| {
            let age = |id: SequenceId| (kept.contains(&id), id);
            let oldest = (1..NUMBERS).min_by_key(|number| age(self.versions[*number].id)).unwrap_or(OTHERS);
            if age(version) < age(self.versions[oldest].id) { OTHERS } else { oldest }
        });
        if number == OTHERS {
            return OTHERS;
        }
        if self.versions[number].agents > 0 {
            self.versions[OTHERS].agents += self.versions[number].agents;
            self.pairs.renumber(number, OTHERS);
        }
        self.versions[number] = entry;
        number
    }
}

fn number_of(byte: u8) -> usize {
    usize::from(byte >> OUTCOME_BITS)
}

impl Pairs {
    fn byte(&self, slot: u32) -> u8 {
        match self {
            Self::Sparse { slots, bytes } => slots.binary_search(&slot).map_or(0, |at| bytes[at]),
            Self::Dense(bytes) => bytes.get(slot as usize).copied().unwrap_or_default(),
        }
    }

    /// Stores these bytes, which are sorted by slot.
    fn put(&mut self, changes: &[(u32, u8)], all_slots: usize) {
        match self {
            Self::Dense(bytes) => write(bytes, changes),
            Self::Sparse { slots, bytes } => {
                (*slots, *bytes) = merged(slots, bytes, changes);
                if slots.len() * DENSE_FROM <= all_slots {
                    return;
                }
                let before: Vec<(u32, u8)> = slots.iter().copied().zip(bytes.iter().copied()).collect();
                let mut dense = vec![0; all_slots];
                write(&mut dense, &before);
                *self = Self::Dense(dense);
            }
        }
    }

    fn renumber(&mut self, from: usize, to: usize) {
        let (Self::Sparse { bytes, .. } | Self::Dense(bytes)) = self;
        let to = u8::try_from(to).unwrap_or_default() << OUTCOME_BITS;
        for byte in bytes.iter_mut().filter(|byte| **byte != 0 && number_of(**byte) == from) {
            *byte = to | (*byte & OUTCOME_MASK);
        }
    }
}

fn write(bytes: &mut Vec<u8>, changes: &[(u32, u8)]) {
    let Some((last, _)) = changes.last() else { return };
    let needed = *last as usize + 1;
    if bytes.len() < needed {
        bytes.resize(needed, 0);
    }
    for (slot, byte) in changes {
        bytes[*slot as usize] = *byte;
    }
}

/// Returns both, sorted by slot; where both have a slot, the change. A byte of zero removes a slot.
fn merged(slots: &[u32], bytes: &[u8], changes: &[(u32, u8)]) -> (Vec<u32>, Vec<u8>) {
    let room = slots.len() + changes.len();
    let (mut all, mut values) = (Vec::with_capacity(room), Vec::with_capacity(room));
    let mut add = |slot: u32, byte: u8| {
        if byte != 0 {
            all.push(slot);
            values.push(byte);
        }
    };
    let mut at = 0;
    for (slot, byte) in changes {
        while at < slots.len() && slots[at] < *slot {
            add(slots[at], bytes[at]);
            at += 1;
        }
        if slots.get(at) == Some(slot) {
            at += 1;
        }
        add(*slot, *byte);
    }
    slots[at..].iter().zip(&bytes[at..]).for_each(|(slot, byte)| add(*slot, *byte));
    (all, values)
}

//! Tracks which stack has or wants which object. So two stacks of one agent never write the same object, and
//! an object that moves from one stack to another is handed over instead of deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};

use brokkr_api::StackId;
use brokkr_manifest::Key;

use super::stack::StackState;
use crate::model::{Holder, Intent, OtherStacks};

/// Keys are stored as hashes to save memory; the stacks have the keys themselves.
#[derive(Clone, Default)]
pub struct Claims {
    /// Objects that are in the record of a stack, or about to be.
    held: BTreeSet<(u64, StackId)>,
    /// Objects in the newest content of a stack.
    desired: BTreeSet<(u64, StackId)>,
    hasher: RandomState,
}

impl Claims {
    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Adds objects that are in the record of this stack, or about to be.
    pub fn hold<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            self.held.insert((self.hash(key), stack));
        }
    }

    /// Sets the objects in the record of this stack.
    pub fn hold_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        self.held.retain(|(_, holder)| *holder != stack);
        self.hold(stack, keys);
    }

    /// Sets the objects in the newest content of this stack.
    pub fn desire_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        self.desired.retain(|(_, other)| *other != stack);
        for key in keys {
            self.desired.insert((self.hash(key), stack));
        }
    }

    pub fn forget(&mut self, stack: StackId) {
        self.hold_only(stack, std::iter::empty());
        self.desire_only(stack, std::iter::empty());
    }

    /// Returns the stacks that have this object in their records.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = StackId> {
        among(&self.held, self.hash(key))
    }

    /// Returns the stacks whose newest content has this object.
    pub fn desired_by(&self, key: &Key) -> impl Iterator<Item = StackId> {
        among(&self.desired, self.hash(key))
    }
}

fn among(claims: &BTreeSet<(u64, StackId)>, hash: u64) -> impl Iterator<Item = StackId> {
    let first = StackId(uuid::Uuid::nil());
    let last = StackId(uuid::Uuid::max());
    claims.range((hash, first)..=(hash, last)).map(|(_, stack)| *stack)
}

/// The other stacks, as one stack sees them.
pub struct OtherStacksView<'a> {
    pub me: StackId,
    pub claims: &'a Claims,
    pub stacks: &'a BTreeMap<StackId, StackState>,
    /// Stacks whose newest content is not fetched yet.
    pub unread: &'a BTreeSet<StackId>,
}

impl OtherStacks for OtherStacksView<'_> {
    fn holder(&self, key: &Key) -> Option<Holder> {
        let other = self.claims.holders(key).find(|holder| *holder != self.me)?;
        let state = self.stacks.get(&other)?;
        let entry = state.record.as_ref().and_then(|record| record.inventory.get(key));
        // If it is unknown what a stopped stack wants, it keeps what it has written. The metadata of the object shows what it may
        // have written besides.
        let may_keep = !state.has_decided() && entry.is_none_or(|entry| entry.digest.is_some());
        let intent = if self.unread.contains(&other) || state.is_busy_with(key) {
            Intent::Undecided
        } else if self.claims.desired_by(key).any(|stack| stack == other) || may_keep {
            Intent::Keeps
        } else {
            Intent::LetsGo
        };
        Some(Holder { name: state.name(), intent, origin: entry.map(|entry| entry.origin) })
    }

    fn successor(&self, key: &Key) -> Option<String> {
        let other = self.claims.desired_by(key).find(|stack| *stack != self.me)?;
        self.stacks.get(&other).map(StackState::name)
    }

    fn is_prerequisite_of_another_stack(&self, prerequisite: &Key) -> bool {
        self.stacks.iter().any(|(other, state)| *other != self.me && state.desires_object_in(prerequisite))
    }

    fn has_pending_content(&self) -> bool {
        self.unread.iter().any(|other| *other != self.me)
    }
}

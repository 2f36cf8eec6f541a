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
    held: Claimed,
    /// Objects in the newest content of a stack.
    desired: Claimed,
    hasher: RandomState,
}

/// The hashes of objects and the stacks that claim them.
#[derive(Clone, Default)]
struct Claimed {
    by_object: BTreeSet<(u64, StackId)>,
    /// So that the claims of one stack are found without looking at those of all others.
    by_stack: BTreeMap<StackId, Vec<u64>>,
}

impl Claimed {
    fn add(&mut self, stack: StackId, hashes: impl Iterator<Item = u64>) {
        let by_object = &mut self.by_object;
        let mut new = hashes.filter(|hash| by_object.insert((*hash, stack))).peekable();
        // A stack without claims leaves no entry behind.
        if new.peek().is_some() {
            self.by_stack.entry(stack).or_default().extend(new);
        }
    }

    fn remove(&mut self, stack: StackId) {
        for hash in self.by_stack.remove(&stack).unwrap_or_default() {
            self.by_object.remove(&(hash, stack));
        }
    }

    fn stacks(&self, hash: u64) -> impl Iterator<Item = StackId> {
        let first = StackId(uuid::Uuid::nil());
        let last = StackId(uuid::Uuid::max());
        self.by_object.range((hash, first)..=(hash, last)).map(|(_, stack)| *stack)
    }
}

impl Claims {
    /// Adds objects that are in the record of this stack, or about to be.
    pub fn hold<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        let hasher = &self.hasher;
        self.held.add(stack, keys.map(|key| hasher.hash_one(key)));
    }

    /// Sets the objects in the record of this stack.
    pub fn hold_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        self.held.remove(stack);
        self.hold(stack, keys);
    }

    /// Sets the objects in the newest content of this stack.
    pub fn desire_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        let hasher = &self.hasher;
        self.desired.remove(stack);
        self.desired.add(stack, keys.map(|key| hasher.hash_one(key)));
    }

    pub fn forget(&mut self, stack: StackId) {
        self.held.remove(stack);
        self.desired.remove(stack);
    }

    /// Returns the stacks that have this object in their records.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = StackId> {
        self.held.stacks(self.hasher.hash_one(key))
    }

    /// Returns the stacks whose newest content has this object.
    pub fn desired_by(&self, key: &Key) -> impl Iterator<Item = StackId> {
        self.desired.stacks(self.hasher.hash_one(key))
    }
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
        let intent = if state.suspensions.cover(key) {
            // It must not be changed by another stack either.
            Intent::Keeps
        } else if self.unread.contains(&other) || state.is_busy_with(key) {
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

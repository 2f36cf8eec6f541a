//! Which stack has or wants which resource: so that two stacks of one agent never fight over one, and
//! what moves from one to the other is handed over instead of deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};

use brokkr_api::StackId;
use brokkr_manifest::Key;

use super::stack::StackState;
use crate::plan::types::{Holder, Intent, Neighbours};

/// Keys are kept as hashes: ten thousand of them must cost little, and the stacks themselves have the keys.
#[derive(Clone, Default)]
pub struct Claims {
    held: BTreeSet<(u64, StackId)>,
    wished: BTreeSet<(u64, StackId)>,
    hasher: RandomState,
}

impl Claims {
    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// In the record of this stack, or about to be: claimed as soon as it is decided.
    pub fn hold<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            self.held.insert((self.hash(key), stack));
        }
    }

    /// The record holds exactly these now.
    pub fn hold_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        self.held.retain(|(_, holder)| *holder != stack);
        self.hold(stack, keys);
    }

    /// Its newest content names exactly these.
    pub fn wish_only<'a>(&mut self, stack: StackId, keys: impl Iterator<Item = &'a Key>) {
        self.wished.retain(|(_, wisher)| *wisher != stack);
        for key in keys {
            self.wished.insert((self.hash(key), stack));
        }
    }

    pub fn forget(&mut self, stack: StackId) {
        self.hold_only(stack, std::iter::empty());
        self.wish_only(stack, std::iter::empty());
    }

    /// The stacks that have this resource in their records.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = StackId> {
        among(&self.held, self.hash(key))
    }

    fn wishers(&self, key: &Key) -> impl Iterator<Item = StackId> {
        among(&self.wished, self.hash(key))
    }
}

fn among(claims: &BTreeSet<(u64, StackId)>, hash: u64) -> impl Iterator<Item = StackId> {
    let first = StackId(uuid::Uuid::nil());
    let last = StackId(uuid::Uuid::max());
    claims.range((hash, first)..=(hash, last)).map(|(_, stack)| *stack)
}

/// The neighbours of one stack.
pub struct Around<'a> {
    pub me: StackId,
    pub claims: &'a Claims,
    pub stacks: &'a BTreeMap<StackId, StackState>,
    pub unread: &'a BTreeSet<StackId>,
}

impl Neighbours for Around<'_> {
    fn holder(&self, key: &Key) -> Option<Holder> {
        let other = self.claims.holders(key).find(|holder| *holder != self.me)?;
        let state = self.stacks.get(&other)?;
        let intent = if self.unread.contains(&other) || state.is_busy_with(key) {
            Intent::Undecided
        } else if self.claims.wishers(key).any(|wisher| wisher == other) || !state.has_decided() {
            Intent::Keeps
        } else {
            Intent::LetsGo
        };
        let origin = state.record.as_ref().and_then(|record| Some(record.inventory.get(key)?.origin));
        Some(Holder { name: state.name(), intent, origin })
    }

    fn heir(&self, key: &Key) -> Option<String> {
        let other = self.claims.wishers(key).find(|wisher| *wisher != self.me)?;
        self.stacks.get(&other).map(StackState::name)
    }

    fn dwells_on(&self, ground: &Key) -> bool {
        self.stacks.iter().any(|(other, state)| *other != self.me && state.wants_something_on(ground))
    }

    fn unread(&self) -> bool {
        self.unread.iter().any(|other| *other != self.me)
    }
}

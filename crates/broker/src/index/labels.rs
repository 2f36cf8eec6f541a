//! Label → agents, as bitmaps over their slots, and selector → stacks: so that neither a poll nor a change scans the
//! whole fleet.

use std::borrow::{Borrow, Cow};
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use brokkr_api::StackId;
use brokkr_api::selector::{Requirement, Selector};
use roaring::RoaringBitmap;

use crate::domain::labels::{Label, LabelSet};

/// The number of an agent in the snapshot: small and dense, so that sets of agents are bitmaps.
pub type Slot = u32;

/// Agents by the key and value of their labels. Owns the shared copy of each label.
#[derive(Debug, Default)]
pub struct AgentsByLabel {
    everyone: RoaringBitmap,
    by_key: HashMap<Box<str>, Key>,
}

#[derive(Debug, Default)]
struct Key {
    agents: RoaringBitmap,
    by_value: HashMap<ByValue, Agents>,
}

/// A label that is looked up by its value; its key is known.
#[derive(Debug)]
struct ByValue(Label);

impl Borrow<str> for ByValue {
    fn borrow(&self) -> &str {
        self.0.value()
    }
}
impl PartialEq for ByValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.value() == other.0.value()
    }
}
impl Eq for ByValue {}
impl Hash for ByValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.value().hash(state);
    }
}

/// Many labels belong to a single agent, such as its site: those need no bitmap.
#[derive(Debug)]
enum Agents {
    One(Slot),
    Many(Box<RoaringBitmap>),
}

impl Agents {
    fn insert(&mut self, slot: Slot) {
        match self {
            Self::One(one) if *one == slot => {}
            Self::One(one) => *self = Self::Many(Box::new([*one, slot].into_iter().collect())),
            Self::Many(many) => {
                many.insert(slot);
            }
        }
    }

    /// Removes an agent; returns false if none is left.
    fn remove(&mut self, slot: Slot) -> bool {
        match self {
            Self::One(one) => *one != slot,
            Self::Many(many) => {
                many.remove(slot);
                !many.is_empty()
            }
        }
    }

    fn add_to(&self, set: &mut RoaringBitmap) {
        match self {
            Self::One(one) => {
                set.insert(*one);
            }
            Self::Many(many) => *set |= &**many,
        }
    }
}

impl AgentsByLabel {
    /// Inserts the agent, and replaces its labels by the shared copies.
    pub fn insert(&mut self, slot: Slot, labels: &mut LabelSet) {
        self.everyone.insert(slot);
        for label in labels.iter_mut() {
            if !self.by_key.contains_key(label.key()) {
                self.by_key.insert(label.key().into(), Key::default());
            }
            let Some(key) = self.by_key.get_mut(label.key()) else { continue };
            key.agents.insert(slot);
            if let Some((shared, _)) = key.by_value.get_key_value(label.value()) {
                *label = shared.0.clone();
            }
            key.by_value
                .entry(ByValue(label.clone()))
                .and_modify(|agents| agents.insert(slot))
                .or_insert(Agents::One(slot));
        }
    }

    pub fn remove(&mut self, slot: Slot, labels: &LabelSet) {
        for label in labels.iter() {
            let Some(key) = self.by_key.get_mut(label.key()) else { continue };
            key.agents.remove(slot);
            if key.by_value.get_mut(label.value()).is_some_and(|agents| !agents.remove(slot)) {
                key.by_value.remove(label.value());
            }
            if key.agents.is_empty() {
                self.by_key.remove(label.key());
            }
        }
    }

    /// Removes an agent that no longer exists.
    pub fn forget(&mut self, slot: Slot, labels: &LabelSet) {
        self.remove(slot, labels);
        self.everyone.remove(slot);
    }

    pub fn everyone(&self) -> &RoaringBitmap {
        &self.everyone
    }

    /// Returns exactly the agents that the selector matches.
    pub fn select(&self, selector: &Selector) -> RoaringBitmap {
        let terms = || selector.requirements().iter();
        let is_positive =
            |term: &&Requirement| matches!(term, Requirement::In { .. } | Requirement::Exists { .. });
        let mut positive: Vec<_> = terms().filter(is_positive).map(|term| self.named_by(term)).collect();
        positive.sort_by_key(|set| set.len());
        let mut sets = positive.into_iter();
        let mut found = sets.next().map_or_else(|| self.everyone.clone(), Cow::into_owned);
        sets.for_each(|set| found &= &*set);
        for term in terms().filter(|term| !is_positive(term)) {
            found -= &*self.named_by(term);
        }
        found
    }

    /// Returns the agents with the key and, if the term names values, one of those.
    fn named_by(&self, term: &Requirement) -> Cow<'_, RoaringBitmap> {
        let (Requirement::In { key, values } | Requirement::NotIn { key, values }) = term else {
            let (Requirement::Exists { key } | Requirement::Absent { key }) = term else {
                return Cow::default();
            };
            return self.by_key.get(&**key).map_or_else(Cow::default, |key| Cow::Borrowed(&key.agents));
        };
        let Some(key) = self.by_key.get(&**key) else { return Cow::default() };
        let mut found = values.iter().filter_map(|value| key.by_value.get(&**value)).peekable();
        match (found.next(), found.peek()) {
            (Some(Agents::Many(only)), None) => Cow::Borrowed(only),
            (first, _) => {
                let mut sum = RoaringBitmap::new();
                first.into_iter().chain(found).for_each(|agents| agents.add_to(&mut sum));
                Cow::Owned(sum)
            }
        }
    }
}

/// Stacks by one positive term (`key=value`, `key in (…)` or `key`) of each of their selectors.
#[derive(Debug, Default)]
pub struct StacksBySelector {
    by_pair: HashMap<Box<str>, HashMap<Box<str>, BTreeSet<StackId>>>,
    by_key: HashMap<Box<str>, BTreeSet<StackId>>,
    /// Stacks with a selector without a positive term, such as `*`: candidates for every agent.
    others: BTreeSet<StackId>,
}

/// The key that a selector is indexed by.
enum SelectorKey<'a> {
    Pairs(&'a str, &'a [String]),
    Key(&'a str),
    Others,
}

fn key_of(selector: &Selector) -> SelectorKey<'_> {
    let pairs = selector.requirements().iter().filter_map(|requirement| match requirement {
        Requirement::In { key, values } => Some((key, values)),
        _ => None,
    });
    if let Some((key, values)) = pairs.min_by_key(|(_, values)| values.len()) {
        return SelectorKey::Pairs(key, values);
    }
    let key = selector.requirements().iter().find_map(|requirement| match requirement {
        Requirement::Exists { key } => Some(key),
        _ => None,
    });
    key.map_or(SelectorKey::Others, |key| SelectorKey::Key(key))
}

impl StacksBySelector {
    pub fn insert<'a>(&mut self, stack: StackId, selectors: impl IntoIterator<Item = &'a Selector>) {
        for selector in selectors {
            match key_of(selector) {
                SelectorKey::Pairs(key, values) => {
                    let by_value = self.by_pair.entry(key.into()).or_default();
                    for value in values {
                        by_value.entry(value.as_str().into()).or_default().insert(stack);
                    }
                }
                SelectorKey::Key(key) => {
                    self.by_key.entry(key.into()).or_default().insert(stack);
                }
                SelectorKey::Others => {
                    self.others.insert(stack);
                }
            }
        }
    }

    /// Removes the stack from the entries of these selectors.
    pub fn remove<'a>(&mut self, stack: StackId, selectors: impl IntoIterator<Item = &'a Selector>) {
        for selector in selectors {
            match key_of(selector) {
                SelectorKey::Pairs(key, values) => {
                    let Some(by_value) = self.by_pair.get_mut(key) else { continue };
                    values.iter().for_each(|value| remove_from(by_value, value, stack));
                    if by_value.is_empty() {
                        self.by_pair.remove(key);
                    }
                }
                SelectorKey::Key(key) => remove_from(&mut self.by_key, key, stack),
                SelectorKey::Others => {
                    self.others.remove(&stack);
                }
            }
        }
    }

    /// Returns the stacks with a selector that may match these labels.
    pub fn candidates<'a>(&'a self, labels: &'a LabelSet) -> impl Iterator<Item = StackId> + 'a {
        let pairs =
            labels.iter().filter_map(|label| self.by_pair.get(label.key())?.get(label.value())).flatten();
        let keys = labels.iter().filter_map(|label| self.by_key.get(label.key())).flatten();
        pairs.chain(keys).chain(&self.others).copied()
    }
}

fn remove_from(sets: &mut HashMap<Box<str>, BTreeSet<StackId>>, key: &str, stack: StackId) {
    if sets.get_mut(key).is_some_and(|set| set.remove(&stack) && set.is_empty()) {
        sets.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> LabelSet {
        pairs.iter().map(|(key, value)| Label::new(key, value)).collect()
    }

    #[test]
    fn agents_are_selected_exactly_and_nothing_stays_after_removal() {
        let mut fleet = [
            labels(&[("env", "prod")]),
            labels(&[("env", "dev"), ("gpu", "")]),
            labels(&[]),
            labels(&[("env", "prod"), ("old", "x")]),
        ];
        let texts = [
            "env=prod",
            "env in (dev,prod)",
            "gpu",
            "!gpu",
            "env!=prod",
            "*",
            "env=dev,gpu,!old",
            "env=none",
            "env notin (dev,none)",
            "none",
            "!none,env",
            "env=prod,old",
        ];
        let selectors: Vec<Selector> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let stacks: Vec<StackId> = selectors.iter().map(|_| StackId::generate()).collect();
        let (mut by_label, mut by_selector) = (AgentsByLabel::default(), StacksBySelector::default());
        for (slot, labels) in (0..).zip(&mut fleet) {
            by_label.insert(slot, labels);
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            by_selector.insert(*stack, [selector]);
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            let selected = by_label.select(selector);
            for (slot, labels) in (0..).zip(&fleet) {
                let matches = selector.holds(|key| labels.get(key));
                assert_eq!(selected.contains(slot), matches, "{selector} and {labels:?}");
                let found = by_selector.candidates(labels).any(|candidate| candidate == *stack);
                assert!(found || !matches, "{labels:?} must find the stack of {selector}");
            }
        }
        for (slot, labels) in (0..).zip(&fleet) {
            by_label.remove(slot, labels);
        }
        for (stack, selector) in stacks.iter().zip(&selectors) {
            by_selector.remove(*stack, [selector]);
        }
        assert!(by_label.by_key.is_empty());
        assert!(by_selector.by_pair.is_empty() && by_selector.by_key.is_empty());
        assert!(by_selector.others.is_empty());
    }
}

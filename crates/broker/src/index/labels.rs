//! Label → agents, as bitmaps over their slots, and selector → stacks: so that neither a poll nor a change scans the
//! whole fleet.

use std::borrow::{Borrow, Cow};
use std::cmp::Reverse;
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

    fn count_among(&self, set: &RoaringBitmap) -> u64 {
        match self {
            Self::One(one) => u64::from(set.contains(*one)),
            Self::Many(many) => many.intersection_len(set),
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

    /// Returns every key, with its agents.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &RoaringBitmap)> {
        self.by_key.iter().map(|(key, of_key)| (&**key, &of_key.agents))
    }

    /// Returns how many values with this text these agents have for a key, and the most frequent ones: each with the number of agents
    /// that have it.
    pub fn values_among(
        &self,
        key: &str,
        agents: &RoaringBitmap,
        text: Option<&str>,
        most: usize,
    ) -> (usize, Vec<(&str, u64)>) {
        let of_key = self.by_key.get(key).into_iter().flat_map(|of_key| &of_key.by_value);
        let found = of_key.filter(|(value, _)| text.is_none_or(|text| value.0.value().contains(text)));
        let counted = found.map(|(value, have)| (value.0.value(), have.count_among(agents)));
        let mut values: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
        let number = values.len();
        let order = |one: &(&str, u64), other: &(&str, u64)| {
            (Reverse(one.1), one.0).cmp(&(Reverse(other.1), other.0))
        };
        // Each agent may have a value of its own: sorting all of them would take long.
        if number > most {
            values.select_nth_unstable_by(most, order);
            values.truncate(most);
        }
        values.sort_unstable_by(order);
        (number, values)
    }

    /// Returns the agents with the key.
    pub fn with_key(&self, key: &str) -> RoaringBitmap {
        self.by_key.get(key).map(|of_key| of_key.agents.clone()).unwrap_or_default()
    }

    /// Returns the agents with the label.
    pub fn with_label(&self, key: &str, value: &str) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        if let Some(agents) = self.by_key.get(key).and_then(|of_key| of_key.by_value.get(value)) {
            agents.add_to(&mut found);
        }
        found
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
        let everyone = by_label.everyone().clone();
        let values = |agents: &RoaringBitmap, text, most| by_label.values_among("env", agents, text, most);
        assert_eq!(values(&everyone, None, 9), (2, vec![("prod", 2), ("dev", 1)]));
        assert_eq!(values(&everyone, None, 1), (2, vec![("prod", 2)]));
        assert_eq!(values(&everyone, Some("e"), 1), (1, vec![("dev", 1)]));
        assert_eq!(values(&by_label.with_key("gpu"), None, 9), (1, vec![("dev", 1)]));
        assert_eq!(by_label.with_label("env", "prod").iter().collect::<Vec<_>>(), [0, 3]);
        assert!(by_label.with_label("env", "none").is_empty() && by_label.with_key("none").is_empty());
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

//! The labels of agents in little memory: a fleet of a million agents has few different labels, and each is
//! stored once.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use brokkr_api::Labels;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

/// One label, shared by all agents that have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(Arc<(Box<str>, Box<str>)>);

impl Label {
    #[must_use]
    pub fn new(key: &str, value: &str) -> Self {
        Self(Arc::new((key.into(), value.into())))
    }

    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.0
    }

    #[must_use]
    pub fn value(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key(), self.value())
    }
}

/// The labels of one agent, sorted by key, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet(Box<[Label]>);

impl LabelSet {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().try_for_each(|label| {
            if label.key() == key { ControlFlow::Break(label.value()) } else { ControlFlow::Continue(()) }
        });
        found.break_value()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Label> {
        self.0.iter()
    }

    /// Iterates mutably, so that the index can replace labels by shared copies.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Label> {
        self.0.iter_mut()
    }
}

impl FromIterator<Label> for LabelSet {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        let mut labels: Vec<Label> = labels.into_iter().collect();
        labels.sort_unstable();
        labels.dedup_by(|one, other| one.key() == other.key());
        Self(labels.into())
    }
}

impl From<&Labels> for LabelSet {
    fn from(labels: &Labels) -> Self {
        labels.iter().map(|(key, value)| Label::new(key, value)).collect()
    }
}

/// Shares one copy of each label while many sets are read.
#[derive(Debug, Default)]
pub struct Labeller {
    known: HashSet<Known>,
}

#[derive(Debug)]
struct Known(Label);

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.pair() == other.pair()
    }
}
impl Eq for Known {}
impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pair().hash(state);
    }
}

/// A label by its content, so that it can be looked up without allocating.
trait Pair {
    fn pair(&self) -> (&str, &str);
}
impl Pair for Known {
    fn pair(&self) -> (&str, &str) {
        (self.0.key(), self.0.value())
    }
}
impl Pair for (&str, &str) {
    fn pair(&self) -> (&str, &str) {
        *self
    }
}
impl<'a> std::borrow::Borrow<dyn Pair + 'a> for Known {
    fn borrow(&self) -> &(dyn Pair + 'a) {
        self
    }
}
impl PartialEq for dyn Pair + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.pair() == other.pair()
    }
}
impl Eq for dyn Pair + '_ {}
impl Hash for dyn Pair + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pair().hash(state);
    }
}

impl Labeller {
    pub fn label(&mut self, key: &str, value: &str) -> Label {
        if let Some(known) = self.known.get(&(key, value) as &dyn Pair) {
            return known.0.clone();
        }
        let label = Label::new(key, value);
        self.known.insert(Known(label.clone()));
        label
    }

    /// Parses a JSON object of strings, as the database stores labels.
    pub fn read(&mut self, json: &[u8]) -> Result<LabelSet, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let labels = self.deserialize(&mut reader)?;
        reader.end()?;
        Ok(labels)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Labeller {
    type Value = LabelSet;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LabelSet, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Labeller {
    type Value = LabelSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelSet, A::Error> {
        let mut labels = Vec::with_capacity(8);
        while let Some((key, value)) =
            map.next_entry::<std::borrow::Cow<'de, str>, std::borrow::Cow<'de, str>>()?
        {
            labels.push(self.label(&key, &value));
        }
        Ok(labels.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_parsed_in_any_order_and_shared() {
        let mut labeller = Labeller::default();
        let read = labeller.read(br#"{"region": "eu", "env": "prod", "gpu": ""}"#).unwrap();
        let labels: Labels =
            [("env", "prod"), ("gpu", ""), ("region", "eu")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(read, LabelSet::from(&labels));
        assert_eq!((read.get("env"), read.get("gpu"), read.get("e")), (Some("prod"), Some(""), None));
        let again = labeller.read(br#"{"env":"prod"}"#).unwrap();
        let same = |label: &Label| Arc::ptr_eq(&label.0, &again.0[0].0);
        assert!(read.iter().any(same), "there is one copy of a label");
        assert!(labeller.read(br#"{"env": 1}"#).is_err());
    }
}

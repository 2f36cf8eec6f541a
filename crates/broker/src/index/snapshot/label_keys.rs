//! The keys and values of labels, counted.

use brokkr_api::fleet::{LabelKey, LabelValue};
use roaring::RoaringBitmap;

use super::Snapshot;

/// Which labels are listed.
#[derive(Clone, Debug, Default)]
pub struct LabelFilter {
    /// Only this key.
    pub key: Option<String>,
    /// Only values with this text.
    pub value: Option<String>,
    /// Only keys after this one.
    pub after: Option<String>,
    /// The number of keys, plus one if there are more.
    pub limit: usize,
    /// The number of values of each key.
    pub values: usize,
}

impl Snapshot {
    /// Returns the keys of labels of these agents, sorted, each with the number of agents that have it.
    #[must_use]
    pub fn label_keys(&self, agents: &RoaringBitmap, filter: &LabelFilter) -> Vec<(String, u64)> {
        let is_wanted = |key: &str| {
            filter.key.as_deref().is_none_or(|only| only == key)
                && filter.after.as_deref().is_none_or(|after| key > after)
        };
        let keys = self.by_label.keys().filter(|(key, _)| is_wanted(key));
        let mut keys: Vec<(&str, u64)> = keys
            .map(|(key, have)| (key, have.intersection_len(agents)))
            .filter(|(_, count)| *count > 0)
            .collect();
        keys.sort_unstable();
        keys.truncate(filter.limit + 1);
        keys.into_iter().map(|(key, count)| (key.to_owned(), count)).collect()
    }

    /// Returns a key that this number of these agents have, with its most frequent values.
    #[must_use]
    pub fn label_key(
        &self,
        (key, count): (String, u64),
        agents: &RoaringBitmap,
        filter: &LabelFilter,
    ) -> LabelKey {
        let (number, values) =
            self.by_label.values_among(&key, agents, filter.value.as_deref(), filter.values);
        let value = |(value, agents): (&str, u64)| LabelValue { value: value.to_owned(), agents };
        let top = values.into_iter().map(value).collect();
        LabelKey { key, agents: count, values: number as u64, top }
    }
}

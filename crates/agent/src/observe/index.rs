//! The compact index of live objects that carry our label. One owner: the reconciler's task.

use std::collections::HashMap;
use std::sync::Arc;

use brokkr_manifest::Key;

use super::watch::{Change, Part};
use crate::plan::types::{Observed, Seen};
use crate::resource::KindName;

#[derive(Default)]
pub struct Index {
    objects: HashMap<Key, Known>,
    kinds: HashMap<KindName, HashMap<Option<Arc<str>>, PartState>>,
    clock: u64,
}

struct Known {
    seen: Seen,
    /// When it was last heard of, by the index's own count: a re-list forgets only what is older.
    heard: u64,
}

#[derive(Default)]
struct PartState {
    /// Everything that is there is known.
    complete: bool,
    /// How many parts its kind has.
    of: usize,
    /// The count at which the running list began.
    listing_since: Option<u64>,
}

impl Index {
    /// Takes a change in; answers the keys whose picture changed.
    pub fn absorb(&mut self, change: Change) -> Vec<Key> {
        self.clock += 1;
        match change {
            Change::Listing(part) => {
                self.part(&part).listing_since = Some(self.clock);
                Vec::new()
            }
            Change::Listed(part) => {
                let state = self.part(&part);
                state.complete = true;
                let since = state.listing_since.take();
                self.forget(&part, |known| since.is_some_and(|since| known.heard < since))
            }
            Change::Unserved(part) => {
                self.part(&part).complete = true;
                self.forget(&part, |_| true)
            }
            Change::Unwatchable(part, _) => {
                self.part(&part).complete = false;
                Vec::new()
            }
            Change::Unwatched(part) => {
                self.kinds.remove(&part.kind);
                self.forget(&part, |_| true)
            }
            Change::Present(key, seen) => {
                if self.went_back(&key, &seen) {
                    self.objects.remove(&key);
                }
                if self.put(&key, *seen) { vec![key] } else { Vec::new() }
            }
            Change::Gone(key, uid) => {
                let same = self.objects.get(&key).is_some_and(|known| known.seen.uid == uid);
                if same {
                    self.objects.remove(&key);
                    vec![key]
                } else {
                    Vec::new()
                }
            }
            Change::Stirred(..) => Vec::new(),
        }
    }

    /// A list that shows an older version than what was known before it began: the cluster's store was put
    /// back to an earlier state, and the list is right.
    fn went_back(&self, key: &Key, seen: &Seen) -> bool {
        let Some(known) = self.objects.get(key).filter(|known| known.seen.version > seen.version) else {
            return false;
        };
        let parts = self.kinds.get(&KindName::of(key)).into_iter().flatten();
        let covering = parts
            .filter(|(namespace, _)| namespace.is_none() || namespace.as_deref() == key.namespace.as_deref());
        covering.filter_map(|(_, part)| part.listing_since).any(|since| known.heard < since)
    }

    fn part(&mut self, part: &Part) -> &mut PartState {
        let state = self.kinds.entry(part.kind.clone()).or_default().entry(part.namespace.clone());
        let state = state.or_default();
        state.of = part.of;
        state
    }

    fn forget(&mut self, part: &Part, which: impl Fn(&Known) -> bool) -> Vec<Key> {
        let covered = |key: &Key| {
            key.kind == part.kind.kind
                && key.group == part.kind.group
                && (part.namespace.is_none() || key.namespace.as_deref() == part.namespace.as_deref())
        };
        let forgotten: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, known)| covered(key) && which(known))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &forgotten {
            self.objects.remove(key);
        }
        forgotten
    }

    /// What a write answered is known at once; the watch may bring older news afterwards.
    pub fn put(&mut self, key: &Key, seen: Seen) -> bool {
        let heard = self.clock;
        match self.objects.get_mut(key) {
            Some(known) if known.seen.uid == seen.uid && known.seen.version > seen.version => {
                known.heard = heard;
                false
            }
            Some(known) => {
                let changed = known.seen != seen;
                *known = Known { seen, heard };
                changed
            }
            None => {
                self.objects.insert(key.clone(), Known { seen, heard });
                true
            }
        }
    }
}

impl Observed for Index {
    fn seen(&self, key: &Key) -> Option<&Seen> {
        self.objects.get(key).map(|known| &known.seen)
    }

    fn synced(&self, kind: &KindName) -> bool {
        let Some(parts) = self.kinds.get(kind) else { return false };
        parts.values().next().is_some_and(|part| part.of == parts.len())
            && parts.values().all(|part| part.complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Health, HealthState};

    fn seen(uid: &str, version: u64) -> Seen {
        Seen {
            uid: uid.into(),
            version,
            agent: None,
            stack: None,
            id: None,
            checksum: None,
            keep: false,
            has_owner: false,
            deleting: false,
            finalizers: Vec::new(),
            fields: None,
            health: Health { state: HealthState::Ready, reason: String::new(), message: String::new() },
            later: None,
        }
    }

    fn key(name: &str) -> Key {
        format!("/ConfigMap/shop/{name}").parse().unwrap()
    }

    #[test]
    fn older_news_and_a_delete_of_an_earlier_object_change_nothing() {
        let mut index = Index::default();
        assert!(index.put(&key("a"), seen("two", 9)));
        assert!(index.absorb(Change::Present(key("a"), Box::new(seen("two", 8)))).is_empty());
        assert!(index.absorb(Change::Gone(key("a"), "one".into())).is_empty());
        assert_eq!(index.seen(&key("a")).unwrap().version, 9);
        assert_eq!(index.absorb(Change::Gone(key("a"), "two".into())), [key("a")]);
    }

    #[test]
    fn f1_a_list_finds_what_no_event_told() {
        let kind = KindName { group: String::new(), kind: "ConfigMap".into() };
        let part = Arc::new(Part { kind: kind.clone(), namespace: None, of: 1 });
        let mut index = Index::default();
        index.put(&key("stays"), seen("1", 1));
        index.put(&key("went"), seen("2", 2));
        index.absorb(Change::Listing(part.clone()));
        index.absorb(Change::Present(key("stays"), Box::new(seen("1", 1))));
        // Written by ourselves while the list was under way: newer than the list.
        index.put(&key("new"), seen("3", 3));
        assert_eq!(index.absorb(Change::Listed(part)), [key("went")]);
        assert!(index.synced(&kind));
        assert!(index.seen(&key("new")).is_some());
        assert!(index.seen(&key("went")).is_none());
    }
}

//! The compact index of live objects that carry our label. One owner: the reconciler's task.

use std::collections::HashMap;

use brokkr_manifest::Key;

use super::watch::Change;
use crate::plan::types::{Observed, Seen};
use crate::resource::KindName;

#[derive(Default)]
pub struct Index {
    objects: HashMap<Key, Known>,
    kinds: HashMap<KindName, KindState>,
    clock: u64,
}

struct Known {
    seen: Seen,
    /// When it was last heard of, by the index's own count: a re-list forgets only what is older.
    heard: u64,
}

#[derive(Default)]
struct KindState {
    synced: bool,
    /// The count at which the running re-list began.
    listing_since: u64,
}

impl Index {
    /// Takes a change in; answers the keys whose picture changed.
    pub fn absorb(&mut self, change: Change) -> Vec<Key> {
        self.clock += 1;
        match change {
            Change::Listing(kind) => {
                self.kinds.entry(kind).or_default().listing_since = self.clock;
                Vec::new()
            }
            Change::Listed(kind) => {
                let state = self.kinds.entry(kind.clone()).or_default();
                state.synced = true;
                let since = state.listing_since;
                let unheard: Vec<Key> = self
                    .objects
                    .iter()
                    .filter(|(key, known)| known.heard < since && KindName::of(key) == kind)
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in &unheard {
                    self.objects.remove(key);
                }
                unheard
            }
            Change::Present(key, seen) => {
                if self.put(&key, *seen) {
                    vec![key]
                } else {
                    Vec::new()
                }
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
        }
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
        self.kinds.get(kind).is_some_and(|state| state.synced)
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
        let mut index = Index::default();
        index.put(&key("stays"), seen("1", 1));
        index.put(&key("went"), seen("2", 2));
        index.absorb(Change::Listing(kind.clone()));
        index.absorb(Change::Present(key("stays"), Box::new(seen("1", 1))));
        // Written by ourselves while the list was under way: newer than the list.
        index.put(&key("new"), seen("3", 3));
        assert_eq!(index.absorb(Change::Listed(kind.clone())), [key("went")]);
        assert!(index.synced(&kind));
        assert!(index.seen(&key("new")).is_some());
        assert!(index.seen(&key("went")).is_none());
    }
}

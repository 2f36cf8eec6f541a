//! The compact index of live objects with our label. Only the task of the reconciler uses it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use brokkr_manifest::Key;
use hashbrown::{Equivalent, HashMap};

use super::change::{Change, LastState, Part};
use crate::model::{Observed, SeenObject, Uid};
use crate::resource::{KindName, KindRef};

#[derive(Clone, Default)]
pub struct Index {
    kinds: HashMap<KindName, OfKind>,
    /// Counts the applied changes.
    clock: u64,
}

/// The known objects of one kind.
#[derive(Clone, Default)]
struct OfKind {
    parts: HashMap<Option<Arc<str>>, PartState>,
    /// The values are boxed, because a hash table is often half empty.
    objects: HashMap<Path, Box<Known>>,
    /// Jobs that were complete before they were deleted.
    completed: HashMap<Path, Uid>,
}

/// `namespace/name`, without the kind, which is the same for all objects of a table.
#[derive(Clone, PartialEq, Eq)]
struct Path(Box<str>);

/// A borrowed [`Path`], so that a lookup allocates nothing.
#[derive(Hash)]
struct PathRef<'a> {
    namespace: &'a str,
    name: &'a str,
}

#[derive(Clone)]
struct Known {
    seen: SeenObject,
    /// The clock value of its last report: when a list is complete, objects that were last reported before
    /// the list began are removed.
    reported_at: u64,
}

#[derive(Clone, Default)]
struct PartState {
    /// The list is complete.
    complete: bool,
    /// The clock value at which the running list began.
    listing_since: Option<u64>,
}

/// A labelled object that is in no inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanObject {
    pub key: Key,
    pub uid: Uid,
    /// The stack that its metadata names.
    pub stack: Option<Uid>,
}

impl Index {
    /// Applies a change and returns the keys of the objects that changed.
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
                self.forget(&part, |known| since.is_some_and(|since| known.reported_at < since))
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
                let forgotten = self.forget(&part, |_| true);
                if let Some(kind) = self.kinds.get_mut(&part.kind) {
                    kind.parts.remove(&part.namespace);
                    if kind.parts.is_empty() {
                        self.kinds.remove(&part.kind);
                    }
                }
                forgotten
            }
            Change::Present(key, seen) => {
                let seen = *seen;
                let changed = if self.went_back(&key, &seen) {
                    self.set(&key, seen);
                    true
                } else {
                    self.put(&key, seen)
                };
                if changed { vec![key] } else { Vec::new() }
            }
            Change::Gone(key, uid, last) => {
                let Some(kind) = self.kinds.get_mut(&KindRef::of(&key)) else { return Vec::new() };
                let path = PathRef::of(&key);
                if kind.objects.get(&path).is_none_or(|known| known.seen.uid != uid) {
                    return Vec::new();
                }
                let known = kind.objects.remove(&path);
                if last == LastState::Completed || known.is_some_and(|known| known.seen.completed) {
                    kind.completed.insert(Path::of(&key), uid);
                }
                vec![key]
            }
            Change::PrerequisiteChanged(..) | Change::HealthRules(_) => Vec::new(),
        }
    }

    /// Returns whether a running list shows an older version of an object than was known before the list
    /// began. Then etcd was restored to an earlier state, and the list is right.
    fn went_back(&self, key: &Key, seen: &SeenObject) -> bool {
        let Some(kind) = self.kinds.get(&KindRef::of(key)) else { return false };
        let known = kind.objects.get(&PathRef::of(key));
        let Some(known) = known.filter(|known| known.seen.version > seen.version) else { return false };
        let covers = |namespace: &Option<Arc<str>>| {
            namespace.is_none() || namespace.as_deref() == key.namespace.as_deref()
        };
        let covering = kind.parts.iter().filter(|(namespace, _)| covers(namespace));
        covering.filter_map(|(_, part)| part.listing_since).any(|since| known.reported_at < since)
    }

    fn part(&mut self, part: &Part) -> &mut PartState {
        let kind = self.kinds.entry(part.kind.clone()).or_default();
        kind.parts.entry(part.namespace.clone()).or_default()
    }

    fn forget(&mut self, part: &Part, which: impl Fn(&Known) -> bool) -> Vec<Key> {
        let Some(kind) = self.kinds.get_mut(&part.kind) else { return Vec::new() };
        let mut forgotten = Vec::new();
        kind.objects.retain(|path, known| {
            let covered =
                part.namespace.as_deref().is_none_or(|namespace| namespace == path.parts().namespace);
            let forget = covered && which(known);
            if forget {
                if known.seen.completed {
                    kind.completed.insert(path.clone(), known.seen.uid.clone());
                }
                forgotten.push(path.key(&part.kind));
            }
            !forget
        });
        forgotten
    }

    fn set(&mut self, key: &Key, seen: SeenObject) {
        let known = Box::new(Known { seen, reported_at: self.clock });
        let kind = self.kinds.entry(KindName::of(key)).or_default();
        kind.completed.remove(&PathRef::of(key));
        kind.objects.insert(Path::of(key), known);
    }

    /// Stores an object from a watch or from a response to a write; returns whether it changed. A version
    /// that is older than the known one is ignored: a watch may report it after the response to a write.
    pub fn put(&mut self, key: &Key, seen: SeenObject) -> bool {
        let reported_at = self.clock;
        let kind = self.kinds.get_mut(&KindRef::of(key));
        match kind.and_then(|kind| kind.objects.get_mut(&PathRef::of(key))) {
            Some(known) if known.seen.uid == seen.uid && known.seen.version > seen.version => {
                known.reported_at = reported_at;
                false
            }
            Some(known) => {
                let changed = !known.seen.is_equivalent(&seen);
                **known = Known { seen, reported_at };
                changed
            }
            None => {
                self.set(key, seen);
                true
            }
        }
    }

    /// Forgets an object that has no label any more. Unlike a deleted one, it exists.
    pub fn forget_released(&mut self, key: &Key, uid: &Uid) {
        let Some(kind) = self.kinds.get_mut(&KindRef::of(key)) else { return };
        let path = PathRef::of(key);
        if kind.objects.get(&path).is_some_and(|known| known.seen.uid == *uid) {
            kind.objects.remove(&path);
        }
    }

    /// Returns the number of watches with a complete list.
    #[must_use]
    pub fn complete_parts(&self) -> usize {
        let parts = self.kinds.values().flat_map(|kind| kind.parts.values());
        parts.filter(|part| part.complete).count()
    }

    /// Returns objects with our label and metadata that are in no inventory, for example after an error. They
    /// are logged, never deleted.
    #[must_use]
    pub fn orphans(&self, owned: impl Fn(&Key) -> bool) -> Vec<OrphanObject> {
        let live = self
            .kinds
            .iter()
            .flat_map(|(kind, of)| of.objects.iter().map(move |(path, known)| (path.key(kind), &known.seen)));
        // An object that is being deleted, or that has an owner which controls its deletion, is not an
        // orphan.
        live.filter(|(key, seen)| seen.names_itself && !seen.deleting && !seen.has_owner && !owned(key))
            .map(|(key, seen)| OrphanObject { key, uid: seen.uid.clone(), stack: seen.stack.clone() })
            .collect()
    }
}

/// A borrowed namespace of a part.
#[derive(Hash)]
struct InNamespace<'a>(Option<&'a str>);

impl Equivalent<Option<Arc<str>>> for InNamespace<'_> {
    fn equivalent(&self, namespace: &Option<Arc<str>>) -> bool {
        self.0 == namespace.as_deref()
    }
}

impl Path {
    fn of(key: &Key) -> Self {
        Self(format!("{}/{}", key.namespace.as_deref().unwrap_or_default(), key.name).into_boxed_str())
    }

    fn parts(&self) -> PathRef<'_> {
        let (namespace, name) = self.0.split_once('/').unwrap_or(("", &self.0));
        PathRef { namespace, name }
    }

    fn key(&self, kind: &KindName) -> Key {
        let PathRef { namespace, name } = self.parts();
        Key {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
        }
    }
}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl<'a> PathRef<'a> {
    fn of(key: &'a Key) -> Self {
        Self { namespace: key.namespace.as_deref().unwrap_or_default(), name: &key.name }
    }
}

impl Equivalent<Path> for PathRef<'_> {
    fn equivalent(&self, path: &Path) -> bool {
        let PathRef { namespace, name } = path.parts();
        self.namespace == namespace && self.name == name
    }
}

impl Observed for Index {
    fn seen(&self, key: &Key) -> Option<&SeenObject> {
        let kind = self.kinds.get(&KindRef::of(key))?;
        kind.objects.get(&PathRef::of(key)).map(|known| &known.seen)
    }

    fn synced(&self, key: &Key) -> bool {
        let Some(kind) = self.kinds.get(&KindRef::of(key)) else { return false };
        let is_complete = |namespace: Option<&str>| {
            kind.parts.get(&InNamespace(namespace)).is_some_and(|part| part.complete)
        };
        is_complete(None) || is_complete(key.namespace.as_deref())
    }

    fn completed(&self, key: &Key) -> Option<&Uid> {
        self.kinds.get(&KindRef::of(key))?.completed.get(&PathRef::of(key))
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::StackId;

    use super::*;
    use crate::model::fixtures::seen;

    fn key(name: &str) -> Key {
        format!("/ConfigMap/shop/{name}").parse().unwrap()
    }

    #[test]
    fn older_versions_and_a_delete_of_an_earlier_object_are_ignored() {
        let mut index = Index::default();
        assert!(index.put(&key("a"), seen("two", 9)));
        assert!(index.absorb(Change::Present(key("a"), Box::new(seen("two", 8)))).is_empty());
        assert!(index.absorb(Change::Gone(key("a"), "one".into(), LastState::Other)).is_empty());
        assert_eq!(index.seen(&key("a")).unwrap().version, 9);
        assert_eq!(index.absorb(Change::Gone(key("a"), "two".into(), LastState::Other)), [key("a")]);
    }

    #[test]
    fn a_job_that_was_complete_before_it_was_deleted_is_remembered() {
        let job: Key = "batch/Job/shop/migrate".parse().unwrap();
        let gone = |uid: &str, last| Change::Gone(job.clone(), uid.into(), last);
        let mut index = Index::default();
        index.put(&job, seen("one", 1));
        index.absorb(gone("one", LastState::Other));
        assert_eq!(index.completed(&job), None);
        index.put(&job, seen("two", 2));
        assert!(index.absorb(gone("one", LastState::Completed)).is_empty(), "another Job of this name");
        index.absorb(gone("two", LastState::Completed));
        assert_eq!(index.completed(&job), Some(&"two".into()));
        index.put(&job, SeenObject { completed: true, ..seen("three", 3) });
        assert_eq!(index.completed(&job), None);
        index.absorb(gone("three", LastState::Other));
        assert_eq!(index.completed(&job), Some(&"three".into()));
    }

    #[test]
    fn f1_a_list_finds_what_no_event_reported() {
        let kind = KindName { group: String::new(), kind: "ConfigMap".into() };
        let part = Arc::new(Part { kind, namespace: None });
        let mut index = Index::default();
        index.put(&key("stays"), seen("1", 1));
        index.put(&key("went"), seen("2", 2));
        index.absorb(Change::Listing(part.clone()));
        index.absorb(Change::Present(key("stays"), Box::new(seen("1", 1))));
        // Written by this agent while the list was running: newer than the list.
        index.put(&key("new"), seen("3", 3));
        assert_eq!(index.absorb(Change::Listed(part)), [key("went")]);
        assert!(index.synced(&key("any")));
        assert!(index.seen(&key("new")).is_some());
        assert!(index.seen(&key("went")).is_none());
    }

    #[test]
    fn f4_an_object_with_our_metadata_that_is_in_no_inventory_is_found() {
        let mut index = Index::default();
        let stack = StackId::generate();
        let marked = |uid: &str| SeenObject { stack: Some(stack.into()), ..seen(uid, 1) };
        index.put(&key("owned"), marked("1"));
        index.put(&key("orphan"), marked("2"));
        index.put(&key("copied"), SeenObject { names_itself: false, ..marked("3") });
        index.put(&key("leaving"), SeenObject { deleting: true, ..marked("4") });
        index.put(&key("child"), SeenObject { has_owner: true, ..marked("5") });
        let found = index.orphans(|key| key.name == "owned");
        assert_eq!(found, [OrphanObject { key: key("orphan"), uid: "2".into(), stack: Some(stack.into()) }]);
    }
}

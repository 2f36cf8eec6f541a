//! What happens inside the cluster by itself, each thing a while after what caused it.

use brokkr_agent::resource::{KindName, is_prerequisite};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::Server;

/// Holds a definition until everything of its kind is gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Server {
    /// Deletes as the API server does: at once, or marked until its finalizers are removed.
    pub(crate) fn begin_delete(&mut self, key: &Key) {
        let now = self.now;
        let kind = KindName::of(key);
        let Some(object) = self.objects.get(key) else { return };
        if object.is_deleting() {
            return;
        }
        if kind.is_namespace() || kind.is_definition() || !object.finalizers.is_empty() {
            self.change(key, |object| {
                object.deleted_at = Some(now);
                if kind.is_definition() && !object.finalizers.iter().any(|held| held == CLEANUP) {
                    object.finalizers.push(CLEANUP.into());
                }
            });
        } else {
            self.drop_object(key);
        }
    }

    /// When the next thing happens by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        let now = self.now;
        let due = self.objects.iter().filter_map(|(key, object)| {
            let Some(deleted) = object.deleted_at else {
                let orphaned = object.owner.as_ref().is_some_and(|owner| !self.objects.contains_key(owner));
                return if orphaned { Some(now) } else { self.next_of_definition(key) };
            };
            let stuck = self.finalizers_stick && object.finalizers.iter().any(|held| held != CLEANUP);
            (!stuck && !self.waits_for_its_inside(key)).then(|| deleted + self.pace)
        });
        due.min()
    }

    /// Established after a while, shown by discovery after another.
    fn next_of_definition(&self, key: &Key) -> Option<Timestamp> {
        let object = self.objects.get(key).filter(|_| KindName::of(key).is_definition())?;
        if !object.established {
            return Some(object.since + self.pace);
        }
        Some(object.since + self.pace * 2).filter(|shown| *shown > self.now)
    }

    /// Everything inside is being deleted.
    fn waits_for_its_inside(&self, prerequisite: &Key) -> bool {
        let mut inside = self.inside(prerequisite).peekable();
        is_prerequisite(prerequisite)
            && inside.peek().is_some()
            && inside.all(|(_, object)| object.is_deleting())
    }

    /// Lets controllers do what is due.
    pub fn settle(&mut self) {
        let keys: Vec<Key> = self.objects.keys().cloned().collect();
        for key in keys {
            let Some(object) = self.objects.get(&key) else { continue };
            if object.owner.as_ref().is_some_and(|owner| !self.objects.contains_key(owner)) {
                self.begin_delete(&key);
                continue;
            }
            let kind = KindName::of(&key);
            match object.deleted_at {
                Some(at) if at + self.pace <= self.now => self.carry_off(&key),
                None if kind.is_definition() => self.show_established(&key),
                _ => {}
            }
        }
    }

    fn carry_off(&mut self, key: &Key) {
        let members: Vec<Key> = self.inside(key).map(|(member, _)| member.clone()).collect();
        for member in &members {
            self.begin_delete(member);
        }
        let is_empty = self.inside(key).next().is_none();
        let sticks = self.finalizers_stick;
        self.change(key, |object| {
            if !sticks {
                object.finalizers.retain(|held| held == CLEANUP && !is_empty);
            } else if is_empty {
                object.finalizers.retain(|held| held != CLEANUP);
            }
        });
        if is_empty && self.objects.get(key).is_some_and(|object| object.finalizers.is_empty()) {
            self.drop_object(key);
        }
    }

    /// Its status changes when it is established: an event like any other.
    fn show_established(&mut self, key: &Key) {
        let (now, pace) = (self.now, self.pace);
        self.change(key, |object| object.established |= object.since + pace <= now);
    }
}

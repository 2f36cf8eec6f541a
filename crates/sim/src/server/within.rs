//! The work of controllers, which follows its cause after a delay.

use brokkr_agent::resource::{KindName, KindRef, is_job, is_prerequisite};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::{Object, Server};

/// The finalizer that holds a definition until all objects of its kind are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Server {
    /// Deletes an object as the API server does: at once, or, if its finalizers or contents have to go first,
    /// by marking it.
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

    /// Returns the time of the next action of a controller.
    #[must_use]
    pub fn next_event(&self) -> Option<Timestamp> {
        let now = self.now;
        let due = self.objects.iter().filter_map(|(key, object)| {
            let Some(deleted) = object.deleted_at else {
                let orphaned = object.owner.as_ref().is_some_and(|owner| !self.objects.contains_key(owner));
                return if orphaned {
                    Some(now)
                } else {
                    self.next_of_definition(key, object).or_else(|| self.next_of_job(key, object))
                };
            };
            let stuck = self.finalizers_stick && object.finalizers.iter().any(|held| held != CLEANUP);
            (!stuck && !self.waits_for_contents(key)).then(|| deleted + self.pace)
        });
        due.min()
    }

    /// Returns when a definition is established, or after that, when discovery shows it.
    fn next_of_definition(&self, key: &Key, object: &Object) -> Option<Timestamp> {
        if !KindRef::of(key).is_definition() {
            return None;
        }
        if !object.established {
            return Some(object.since + self.pace);
        }
        Some(object.since + self.pace * 2).filter(|shown| *shown > self.now)
    }

    /// Returns when a Job finishes, or after that, when it is collected.
    fn next_of_job(&self, key: &Key, object: &Object) -> Option<Timestamp> {
        match object.finished_at {
            _ if !is_job(key) => None,
            None if self.unready.contains(key) => None,
            None => Some(object.since + self.pace),
            Some(finished) => object.has_ttl().then(|| finished + self.pace * 4),
        }
    }

    fn run_job(&mut self, key: &Key) {
        let now = self.now;
        let Some(object) = self.objects.get(key) else { return };
        let Some(at) = self.next_of_job(key, object).filter(|at| *at <= now) else { return };
        if object.finished_at.is_some() {
            self.begin_delete(key);
        } else {
            let ran = object.applied.as_ref().map(|applied| applied.body.clone());
            let has_failed = self.failing_jobs.contains(key);
            let ended = if has_failed { &mut self.failed_jobs } else { &mut self.completed_jobs };
            ended.extend(ran.map(|body| (key.clone(), body)));
            self.change(key, |object| (object.finished_at, object.has_failed) = (Some(at), has_failed));
        }
    }

    /// Returns whether there are contents, and all of them are already being deleted.
    fn waits_for_contents(&self, prerequisite: &Key) -> bool {
        let mut inside = self.inside(prerequisite).peekable();
        is_prerequisite(prerequisite)
            && inside.peek().is_some()
            && inside.all(|(_, object)| object.is_deleting())
    }

    /// Lets an object become ready or unready.
    pub fn set_ready(&mut self, key: &Key, is_ready: bool) {
        let before = self.seen(key);
        let has_changed = if is_ready { self.unready.remove(key) } else { self.unready.insert(key.clone()) };
        if has_changed && let Some(object) = self.objects.get_mut(key) {
            self.version += 1;
            object.version = self.version;
            self.notify_watches(key, before);
        }
    }

    /// Lets controllers do the work that is due.
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
                Some(at) if at + self.pace <= self.now => self.finish_deletion(&key),
                None if kind.is_definition() => self.show_established(&key),
                None if is_job(&key) => self.run_job(&key),
                _ => {}
            }
        }
    }

    fn finish_deletion(&mut self, key: &Key) {
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

    /// Updates the status of a definition when it is established. Watches report this like any other change.
    fn show_established(&mut self, key: &Key) {
        let (now, pace) = (self.now, self.pace);
        self.change(key, |object| object.established |= object.since + pace <= now);
    }
}

impl Object {
    fn has_ttl(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.ttl)
    }
}

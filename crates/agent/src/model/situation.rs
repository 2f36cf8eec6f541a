//! The complete input of a plan.

use std::collections::HashSet;

use brokkr_api::AgentId;
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::content::Goal;
use super::object::{SeenObject, Uid};
use super::progress::Progress;
use super::record::{Origin, Record};
use super::suspension::Suspensions;
use super::wave_clock::WaveClock;
use crate::resource::is_job;

/// The live objects that the watches have observed.
pub trait Observed {
    fn seen(&self, key: &Key) -> Option<&SeenObject>;
    /// Returns whether all objects of this kind and namespace with our label are known.
    fn synced(&self, key: &Key) -> bool;
    /// Returns the uid of a Job that was complete before it was deleted.
    fn completed(&self, key: &Key) -> Option<&Uid>;
}

/// What a plan needs to know about the other stacks of this agent.
pub trait OtherStacks {
    /// Returns another stack that has this object in its record, or is about to, and its intent.
    fn holder(&self, key: &Key) -> Option<Holder>;
    /// Returns the name of another stack, if its newest content contains this object.
    fn successor(&self, key: &Key) -> Option<String>;
    /// Returns whether the newest content of another stack has an object in this Namespace, or of this
    /// definition. Such an object may be created at any time, also after the contained objects were listed.
    fn is_prerequisite_of_another_stack(&self, prerequisite: &Key) -> bool;
    /// Returns whether the newest content of some other stack is not fetched yet: it may contain any object.
    fn has_pending_content(&self) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub intent: Intent,
    /// Passed on to the successor, because only a Namespace that Brokkr created may be deleted.
    pub origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Keeps,
    /// Unknown until its newest content is fetched, or its running request for the object is answered.
    Undecided,
    LetsGo,
}

/// The complete input of a plan.
pub struct Situation<'a> {
    pub agent: AgentId,
    /// The agent's own namespace, in which stacks may not change anything.
    pub home: &'a str,
    pub session: i64,
    pub goal: &'a Goal,
    pub record: Option<&'a Record>,
    /// Whether the broker knows that this agent holds the stack: objects of it may be in the cluster.
    pub held: bool,
    pub progress: &'a Progress,
    pub observed: &'a dyn Observed,
    pub other_stacks: &'a dyn OtherStacks,
    /// What is left alone.
    pub suspensions: &'a Suspensions,
    /// For how long the delivery has waited for a wave.
    pub wave_clock: &'a WaveClock,
    /// Objects with a planned or running request.
    pub busy: &'a HashSet<Key>,
    /// How long workloads must be ready before the stack counts as healthy.
    pub stable_after: SignedDuration,
    pub now: Timestamp,
}

impl Situation<'_> {
    /// Returns the record; a new one if there is none.
    #[must_use]
    pub fn current_record(&self) -> Record {
        self.record.cloned().unwrap_or_else(|| Record::new(&self.goal.target, self.session))
    }

    /// Returns whether another client has deleted a Job that was complete. For repairs, also while a newer content is refused:
    /// otherwise the Job of the older one would run again and again.
    #[must_use]
    pub fn was_completed_before_it_was_gone(&self, key: &Key) -> bool {
        if !is_job(key) {
            return false;
        }
        let entry = self.record.and_then(|record| record.inventory.get(key));
        let uid = entry.and_then(|entry| entry.uid.as_ref());
        uid.is_some()
            && self.observed.seen(key).is_none()
            && self.observed.completed(key) == uid
            && !self.progress.cleanup.deleted.contains_key(key)
    }

    /// Returns whether a Job was complete before it was deleted, or is being deleted. Such a Job is not missing, and equal
    /// content does not run it again.
    #[must_use]
    pub fn is_completed_and_gone(&self, key: &Key) -> bool {
        let record = self.record.filter(|_| is_job(key));
        let Some((record, entry)) = record.and_then(|record| Some((record, record.inventory.get(key)?)))
        else {
            return false;
        };
        let seen = self.observed.seen(key);
        if seen.is_some_and(|seen| !seen.deleting) {
            return false;
        }
        // Unless the record is settled, this agent may have deleted the Job itself, for a removal or a prune.
        let is_settled = record.removal.is_none()
            && record.sequence == self.goal.target.sequence_id
            && record.applied == Some(record.sequence);
        let is_same = |uid: &Uid| entry.uid.as_ref() == Some(uid);
        let was_seen = seen.is_some_and(|seen| seen.completed && is_same(&seen.uid))
            || self.observed.completed(key).is_some_and(is_same);
        entry.completed || is_settled && was_seen
    }
}

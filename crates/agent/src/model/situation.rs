//! Everything that a plan is a function of.

use std::collections::HashSet;

use brokkr_api::AgentId;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::content::Goal;
use super::object::SeenObject;
use super::progress::Progress;
use super::record::{Origin, Record};
use crate::resource::KindName;

/// What is known of the cluster's live objects without asking.
pub trait Observed {
    fn seen(&self, key: &Key) -> Option<&SeenObject>;
    /// Whether everything of this kind that carries our label is known.
    fn synced(&self, kind: &KindName) -> bool;
}

/// The other stacks of this agent, as far as they matter to one.
pub trait OtherStacks {
    /// Another stack that has this resource in its record, or is about to, and what it means to do with it.
    fn holder(&self, key: &Key) -> Option<Holder>;
    /// Returns the name of another stack, if its newest content contains this object.
    fn successor(&self, key: &Key) -> Option<String>;
    /// Returns whether another stack's newest content has an object in this Namespace, or of this definition: it may put it
    /// there at any moment, also after the inside was listed.
    fn is_prerequisite_of_another_stack(&self, prerequisite: &Key) -> bool;
    /// Whether the newest content of some other stack is still on its way: it may name anything.
    fn has_pending_content(&self) -> bool;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub intent: Intent,
    /// Goes on to the successor: who created a Namespace decides what may become of it.
    pub origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Keeps,
    /// Not known before its newest content is, or before its own request is answered.
    Undecided,
    LetsGo,
}

/// Everything a plan is a function of.
pub struct Situation<'a> {
    pub agent: AgentId,
    pub session: i64,
    pub goal: &'a Goal,
    pub record: Option<&'a Record>,
    /// Whether the broker knows that this agent holds the stack.
    pub held: bool,
    pub progress: &'a Progress,
    pub observed: &'a dyn Observed,
    pub other_stacks: &'a dyn OtherStacks,
    pub busy: &'a HashSet<Key>,
    pub now: Timestamp,
}

impl Situation<'_> {
    /// Returns the record as this run would write it; a new one if there is none.
    #[must_use]
    pub fn current_record(&self) -> Record {
        let record = self.record.cloned();
        let mut record = record.unwrap_or_else(|| Record::new(&self.goal.target, self.session));
        record.session = self.session;
        record
    }
}

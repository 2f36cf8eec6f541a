//! What this process has done for the current goal.
//!
//! If it is lost, requests are repeated, but nothing goes wrong: the record has everything that must survive.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use brokkr_api::reason::LeftBecause;
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::failure::{Cause, RetryState};
use super::object::{SeenObject, SeenState, Uid};
use super::suspension::FoundEdits;

/// The stage of a delivery or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Announce,
    Fetch,
    Inspect,
    Record,
    Prerequisites,
    Validate,
    Apply,
    Prune,
    Finish,
    Steady,
    /// The stack is left alone before it is completely applied or removed.
    Suspended,
    Stopped,
    Remove,
    Done,
}

#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub lookups: Lookups,
    pub delivery: Delivery,
    pub failures: Failures,
    pub cleanup: Cleanup,
    pub repairs: Repairs,
    pub readiness: Readiness,
    /// The stage that waits, and since when.
    pub waiting: Option<(Stage, Timestamp)>,
    /// Since when the delivery is stopped.
    pub stopped_since: Option<Timestamp>,
}

impl Progress {
    /// Returns since when this stage waits.
    #[must_use]
    pub fn waiting_since(&self, stage: Stage) -> Option<Timestamp> {
        self.waiting.filter(|(waiting, _)| *waiting == stage).map(|(_, since)| since)
    }
}

/// Responses of the API server with data that no watch provides.
#[derive(Clone, Debug, Default)]
pub struct Lookups {
    /// Objects that do not carry our label; none if there is no such object.
    pub objects: HashMap<Key, Option<SeenObject>>,
    /// The rights that are missing; none before the check.
    pub missing_rights: Option<Vec<ObjectNote>>,
    /// Definitions whose kinds discovery already shows.
    pub served: HashSet<Key>,
    /// What other clients have changed in objects that were left alone.
    pub edits: HashMap<Key, FoundEdits>,
    /// What other clients have changed in objects that are not repaired, and the state of the object when it was read.
    pub drift: HashMap<Key, (Option<SeenState>, FoundEdits)>,
    /// For each namespace or definition that is about to be deleted: the objects of others that it contains.
    pub contained: HashMap<Key, Vec<String>>,
}

/// How far the delivery of the current content has come.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    pub validated: HashSet<Key>,
    pub written: HashSet<Key>,
    /// Objects that may be recreated, because the content changes one of their immutable fields.
    pub replace: HashSet<Key>,
    /// Whether the content of the previously applied version was already requested.
    pub earlier_requested: bool,
    /// Whether an apply has shown another uid than the stored record has.
    pub has_unrecorded_uid: bool,
}

/// Failed requests.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    pub objects: BTreeMap<Key, RetryState>,
    /// Failures to restore objects of an earlier content. They say nothing about the newest content.
    pub put_back: BTreeMap<Key, RetryState>,
    /// Why the content could not be fetched or read.
    pub fetch: Option<RetryState>,
}

/// What a prune or removal has done.
#[derive(Clone, Debug, Default)]
pub struct Cleanup {
    /// Deletions that the server accepted, with the uid of the deleted object.
    pub deleted: HashMap<Key, Uid>,
    /// Objects that stay in the cluster on purpose, with the reason.
    pub left: BTreeMap<Key, LeftBecause>,
}

/// Repairs of objects that others changed.
#[derive(Clone, Debug, Default)]
pub struct Repairs {
    /// Objects that the running sweep has not checked yet.
    pub unswept: BTreeSet<Key>,
    /// How often each object was repaired recently.
    pub fights: HashMap<Key, Fight>,
    /// The field managers that change our fields, as far as the API server names them.
    pub rivals: HashMap<Key, Vec<Rival>>,
    /// Repairs since the last report of repairs.
    pub count: u32,
    /// When repairs were last reported.
    pub reported_at: Option<Timestamp>,
}

/// What is known about workloads that are not ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// The cause, and when it was looked up.
    pub causes: HashMap<Key, (Timestamp, Option<Cause>)>,
    /// Since when some object of the stack is not ready.
    pub unready_since: Option<Timestamp>,
    /// Since when all objects of the stack are ready.
    pub ready_since: Option<Timestamp>,
    /// When the record was last written; a changed reason is reported only some time after that.
    pub reported_at: Option<Timestamp>,
}

/// A field manager that changes fields of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    pub manager: String,
    pub fields: Vec<String>,
}

/// The repairs of one object in quick succession, and the time of the last one.
#[derive(Clone, Copy, Debug)]
pub struct Fight {
    pub rounds: u32,
    pub last: Timestamp,
}

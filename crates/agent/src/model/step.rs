//! The requests of a plan, and their results.

use std::collections::BTreeSet;
use std::sync::Arc;

use brokkr_api::SequenceId;
use brokkr_api::reason::{LeftBecause, Message, Prerequisite, Wave};
use brokkr_api::report::ObjectNote;
use brokkr_manifest::Key;
use jiff::Timestamp;
use serde_json::Value;

use super::content::{Content, DesiredObject};
use super::failure::{Cause, Failure};
use super::object::{SeenObject, SeenState, Uid};
use super::progress::{Rival, Stage};
use super::record::Record;
use crate::ownership::Stamp;
use crate::resource::{Kind, KindIn, Served};

/// One request.
#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// Announce to the broker that this agent holds the stack, before the first write for it.
    Hold,
    /// Get, verify, parse and resolve the content.
    Fetch,
    /// Get the previously applied content from the cache: its objects are still repaired.
    FetchEarlier {
        sequence: SequenceId,
    },
    WriteRecord(Box<Record>),
    /// Delete the record: the stack is gone and the broker knows it.
    DropRecord,
    /// Evict the cached content of this stack, except that of this version.
    ForgetContents {
        keep: SequenceId,
    },
    /// Read one object that does not carry our label.
    ReadObject {
        key: Key,
        kind: Kind,
    },
    /// Wait until discovery shows the kinds of an established definition.
    Resolve {
        key: Key,
        kinds: Vec<Kind>,
    },
    /// Find the missing rights for the objects of the content.
    CheckRights {
        content: Arc<Content>,
    },
    /// List the objects in a namespace, or of a definition.
    ListContained {
        key: Key,
        kind: Kind,
    },
    DryRun {
        desired: Arc<DesiredObject>,
        uid: Option<Uid>,
        stamp: Stamp,
    },
    Apply {
        desired: Arc<DesiredObject>,
        uid: Option<Uid>,
        stamp: Stamp,
        why: ApplyReason,
    },
    /// Find the field managers that change our fields: a dry run without force names them.
    FindRivals {
        desired: Arc<DesiredObject>,
        stamp: Stamp,
    },
    /// Read what other clients have changed since this time in an object that was left alone.
    ReadEdits {
        desired: Arc<DesiredObject>,
        since: Timestamp,
    },
    /// Read what other clients have changed in an object of a stack whose drift is reported, not repaired.
    ReadDrift {
        desired: Arc<DesiredObject>,
        /// The object that was observed; none if it is gone.
        seen: Option<SeenState>,
    },
    /// Read the Pods and events of a workload to find out why it is not ready.
    Diagnose {
        desired: Arc<DesiredObject>,
    },
    Delete {
        key: Key,
        kind: Kind,
        uid: Uid,
    },
    /// Remove our ownership metadata, in order to adopt the object again: another client has raised its sequence id above every one
    /// that this agent ever applied, and the fence allows no lower one.
    Reclaim {
        key: Key,
        kind: Kind,
        uid: Uid,
    },
    /// Remove our ownership metadata and leave the object.
    Release {
        key: Key,
        kind: Kind,
        uid: Uid,
        because: LeftBecause,
    },
}

impl Step {
    /// Returns whether the step changes an object of the stack.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::Delete { .. } | Self::Reclaim { .. } | Self::Release { .. })
    }

    /// Returns the object that the step is about, if any.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::ReadObject { key, .. }
            | Self::ListContained { key, .. }
            | Self::Resolve { key, .. }
            | Self::Delete { key, .. }
            | Self::Reclaim { key, .. }
            | Self::Release { key, .. } => Some(key),
            Self::DryRun { desired, .. }
            | Self::Apply { desired, .. }
            | Self::FindRivals { desired, .. }
            | Self::ReadEdits { desired, .. }
            | Self::ReadDrift { desired, .. }
            | Self::Diagnose { desired } => Some(&desired.key),
            Self::Hold
            | Self::Fetch
            | Self::WriteRecord(_)
            | Self::DropRecord
            | Self::CheckRights { .. }
            | Self::FetchEarlier { .. }
            | Self::ForgetContents { .. } => None,
        }
    }

    /// Returns the name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// Why an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyReason {
    /// It is part of a delivery.
    Deliver,
    /// Another client changed it.
    Repair,
    /// Another client changed it, and the state of an earlier content is restored: the newest content is
    /// refused or not applied yet.
    PutBack,
    /// A periodic check without an observed change. The object had this version before the check.
    Sweep { version: u64 },
}

/// The result of a step.
#[derive(Clone, Debug)]
pub enum StepResult {
    Held,
    Fetched(Arc<Content>),
    FetchedEarlier(Option<Arc<Content>>),
    RecordWritten {
        version: String,
    },
    /// The record was not written: an earlier run had written a newer one that this run has not read.
    RecordFound(Box<Record>),
    RecordDropped,
    ContentsForgotten,
    ObjectRead(Option<SeenObject>),
    Contained(Vec<String>),
    /// The dry run succeeded; `exists` says whether the object exists.
    Valid {
        exists: bool,
    },
    Resolved,
    RightsChecked(Vec<ObjectNote>),
    Applied {
        seen: SeenObject,
        /// Whether this agent has created it: with this request, or with an earlier one whose answer it did not get.
        created: bool,
    },
    RivalsFound(Vec<Rival>),
    /// What other clients have changed; none if it is too large.
    EditsRead(Option<Value>),
    Diagnosed(Option<Cause>),
    DeleteAccepted,
    Gone,
    Reclaimed,
    Released,
    Failed(Failure),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub stage: Stage,
    /// Steps that may run concurrently.
    pub steps: Vec<Step>,
    /// What must be watched before the stack can continue.
    pub watch: BTreeSet<KindIn>,
    /// What has to change before the stack can continue.
    pub blocked_on: BTreeSet<Prerequisite>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// What the stack waits for, in words; none if it does not wait.
    pub waiting_for: Option<Message>,
    /// The wave that has to be ready before the delivery goes on.
    pub waits_for_wave: Option<Wave>,
    /// Whether an applied object is not ready.
    pub unready: bool,
    /// The plan depends on other stacks of this agent: plan again when they change.
    pub depends_on_others: bool,
}

impl Plan {
    #[must_use]
    pub fn new(stage: Stage) -> Self {
        Self {
            stage,
            steps: Vec::new(),
            watch: BTreeSet::new(),
            blocked_on: BTreeSet::new(),
            wake_at: None,
            waiting_for: None,
            waits_for_wave: None,
            unready: false,
            depends_on_others: false,
        }
    }

    #[must_use]
    pub fn with(stage: Stage, steps: Vec<Step>) -> Self {
        Self { steps, ..Self::new(stage) }
    }

    #[must_use]
    pub fn waiting(stage: Stage, what: impl Into<Message>) -> Self {
        Self { waiting_for: Some(what.into()), ..Self::new(stage) }
    }

    /// Adds a time to plan again; the earliest one counts.
    #[must_use]
    pub fn wake(mut self, at: Option<Timestamp>) -> Self {
        self.wake_at = match (self.wake_at, at) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self
    }
}

/// Returns the kind to watch for a prerequisite.
#[must_use]
pub fn prerequisite_kind(prerequisite: Prerequisite) -> Kind {
    let (group, kind, plural) = match prerequisite {
        Prerequisite::Definition => {
            ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
        }
        Prerequisite::Namespace => ("", "Namespace", "namespaces"),
    };
    Kind::from(Served {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced: false,
    })
}

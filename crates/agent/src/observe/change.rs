//! The changes that watches report.

use std::sync::Arc;

use brokkr_api::health_rules::HealthRule;
use brokkr_manifest::Key;

use crate::model::{Prerequisite, SeenObject, Uid};
use crate::resource::KindName;

/// A change that a watch reports.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list began: objects that are not reported before it ends are gone.
    Listing(Arc<Part>),
    Listed(Arc<Part>),
    Present(Key, Box<SeenObject>),
    /// The object was deleted or no longer has our label: read it before a decision.
    Gone(Key, Uid, LastState),
    /// The kind is not served, so no objects of it exist. The watch is retried; a list follows once the kind
    /// is served.
    Unserved(Arc<Part>),
    /// The watch is forbidden for this reason, so the objects are unknown. It is retried.
    Unwatchable(Arc<Part>, String),
    /// The kind is no longer watched, because no stack needs it. This is the last change of this part.
    Unwatched(Arc<Part>),
    /// These health rules began or ceased to apply: objects of their kinds have to be evaluated again.
    HealthRules(Vec<HealthRule>),
    /// The definition or namespace with this name changed, whatever its owner.
    PrerequisiteChanged(Prerequisite, String),
}

/// What is known about the last state of an object that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastState {
    /// It was a Job that was complete.
    Completed,
    Other,
}

/// The part of a kind that one watch covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    pub kind: KindName,
    /// None for all namespaces, or if the kind is not namespaced.
    pub namespace: Option<Arc<str>>,
}

/// The namespaces that this agent watches.
#[derive(Clone, Debug)]
pub enum Scope {
    Cluster,
    Namespaces(Vec<String>),
}

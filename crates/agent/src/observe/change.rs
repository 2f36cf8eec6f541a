//! What watches report.

use std::sync::Arc;

use brokkr_manifest::Key;

use crate::model::{Prerequisite, SeenObject, Uid};
use crate::resource::KindName;

/// What a watch reports.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list began: objects that are not reported before it ends are gone.
    Listing(Arc<Part>),
    Listed(Arc<Part>),
    Present(Key, Box<SeenObject>),
    /// Deleted, or without our label now: read it before deciding.
    Gone(Key, Uid),
    /// The kind is not served, so no objects of it exist. Retried; a list follows when it is back.
    Unserved(Arc<Part>),
    /// The watch is forbidden, and why: the objects are unknown. Retried.
    Unwatchable(Arc<Part>, String),
    /// No longer watched, because no stack needs it. The last change of this part.
    Unwatched(Arc<Part>),
    /// The definition or namespace with this name changed, whatever its owner.
    PrerequisiteChanged(Prerequisite, String),
}

/// What one watch covers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub kind: KindName,
    /// None: all of them, or not namespaced.
    pub namespace: Option<Arc<str>>,
    /// The number of parts of this kind; it is complete when all are.
    pub of: usize,
}

/// The namespaces that this agent watches.
#[derive(Clone, Debug)]
pub enum Scope {
    Cluster,
    Namespaces(Vec<String>),
}

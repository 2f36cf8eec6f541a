//! What watches report.

use std::sync::Arc;

use brokkr_manifest::Key;

use crate::model::{Prerequisite, SeenObject, Uid};
use crate::resource::KindName;

/// What a watch reports.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list began: whatever is not heard of before it ends is gone.
    Listing(Arc<Part>),
    Listed(Arc<Part>),
    Present(Key, Box<SeenObject>),
    /// Deleted, or without our label now: ask before concluding anything.
    Gone(Key, Uid),
    /// There is no such kind now, so nothing of it is there. Asked for again; a list follows when it is back.
    Unserved(Arc<Part>),
    /// May not be watched, and why: what is there is not known. Asked for again.
    Unwatchable(Arc<Part>, String),
    /// No longer watched, because no stack needs it. The last change of this part.
    Unwatched(Arc<Part>),
    /// Something happened to the definition or namespace of this name, be it ours or not.
    PrerequisiteChanged(Prerequisite, String),
}

/// What one watch covers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub kind: KindName,
    /// None: all of them, or not namespaced.
    pub namespace: Option<Arc<str>>,
    /// How many parts there are of this kind; it is known when all are.
    pub of: usize,
}

/// Where this agent looks.
#[derive(Clone, Debug)]
pub enum Scope {
    Cluster,
    Namespaces(Vec<String>),
}

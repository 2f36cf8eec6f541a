//! YAML to Kubernetes objects, under a budget.
//!
//! The command line, the broker and the agent all read manifests with this crate and nothing else, so that
//! what the broker accepted is what the agent sees. It does no IO and knows no cluster: everything here is a
//! function of the bytes.
//!
//! A manifest walks through the rooms in this order:
//!
//! 1. [`parse`](mod@parse): bytes to documents to objects, every problem collected.
//! 2. [`shape`]: is it a Kubernetes object, and which one ([`Identity`])?
//! 3. [`refuse`]: what no stack may contain, whoever submits it.
//! 4. [`normal`]: the one form in which an object is compared, hashed and applied.
//! 5. [`canonical`]: that form as bytes, and their digests.
//!
//! [`order`] says what is applied before what, [`yields`] what is left to others, [`redact`] what may be shown,
//! [`diff`](mod@diff) what differs between two versions.

pub mod budget;
pub mod canonical;
pub mod diff;
pub mod error;
pub mod identity;
pub mod normal;
pub mod order;
pub mod parse;
pub mod redact;
pub mod refuse;
pub mod shape;
pub mod yields;

use serde_json::Value;

pub use budget::Budget;
pub use canonical::{Digest, checksum, from_hex, to_hex};
pub use error::{ManifestError, ManifestErrors, Place, Problem};
pub use identity::{Identity, Key, KeyError};
pub use order::{Rank, Stage, deletion_stages, rank, stages};
pub use parse::parse;
pub use redact::redacted;

/// One Kubernetes object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Which resource this is.
    pub identity: Identity,
    /// The object in its normal form (see [`normal`]): this is what is applied.
    pub body: Value,
    /// SHA-256 of the body as canonical JSON.
    pub digest: Digest,
}

impl Object {
    /// The value of an annotation, if it is set.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.body.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }
}

/// Everything that one submission contains. Never empty: [`parse`](parse::parse) refuses that.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The objects in the order in which the author wrote them, lists flattened.
    pub objects: Vec<Object>,
}

impl Manifest {
    /// The digest of what was *read*, where [`checksum`] is that of what was *written*: broker and agent compare
    /// it, so that two versions of this parser can never silently disagree. The order of documents, comments and
    /// layout do not change it.
    pub fn digest(&self) -> Digest {
        canonical::digest_of_all(&self.objects)
    }
}

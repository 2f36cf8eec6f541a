//! Parses YAML into Kubernetes objects, within limits on size and complexity.
//!
//! The command line, the broker and the agent all parse manifests with this crate, so that the agent sees what the
//! broker accepted. It does no I/O and knows no cluster: the result depends only on the bytes.
//!
//! A manifest passes through these modules in order:
//!
//! 1. [`parse`](mod@parse): splits the bytes into documents and objects, and collects all problems.
//! 2. [`shape`]: checks that a value is a Kubernetes object, and returns its [`Identity`].
//! 3. [`refuse`]: refuses objects that no stack may contain.
//! 4. [`normal`]: brings an object into the form that is compared, hashed and applied.
//! 5. [`canonical`]: serialises that form, and computes digests.
//!
//! [`order`] returns the order of applying and deleting, [`hooks`] which objects are Helm hooks, [`yields`] the fields that other managers own, [`redact`] a copy
//! without secret values, and [`diff`](mod@diff) the differences between two versions.

pub mod budget;
pub mod canonical;
pub mod diff;
pub mod error;
pub mod hooks;
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
pub use error::{Location, ManifestError, ManifestErrors, Problem};
pub use hooks::{Hook, HookUse, Side, hook_of};
pub use identity::{Identity, Key, KeyError};
pub use order::{Rank, Stage, deletion_stages, rank, stages};
pub use parse::{parse, parse_live};
pub use redact::redacted;

/// One Kubernetes object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Which resource this is.
    pub identity: Identity,
    /// The object in its normal form (see [`normal`]), in which it is applied.
    pub body: Value,
    /// SHA-256 of the body as canonical JSON.
    pub digest: Digest,
}

impl Object {
    /// Returns the value of an annotation, if it is set.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.body.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }
}

/// All objects of one submission; never empty, because [`parse`](parse::parse) refuses an empty manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The objects in the order in which the author wrote them, lists flattened.
    pub objects: Vec<Object>,
}

impl Manifest {
    /// Returns the digest of the parsed objects; [`checksum`] is that of the submitted bytes. Broker and agent compare
    /// it, so that two versions of this parser cannot silently disagree. The order of documents, comments and layout do
    /// not change it.
    pub fn digest(&self) -> Digest {
        canonical::digest_of_all(&self.objects)
    }
}

//! Deployment objects: immutable versions of a stack.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{Checksum, SequenceId, StackId};

/// One immutable version of a stack, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentObject {
    pub project: String,
    pub stack_id: StackId,
    pub sequence_id: SequenceId,
    /// SHA-256 of exactly the submitted bytes.
    pub checksum: Checksum,
    /// SHA-256 of the parsed objects in canonical form.
    pub parsed_digest: Checksum,
    pub is_deletion_marker: bool,
    /// How many resources it contains.
    pub resources: i32,
    /// The name of the token that submitted it.
    pub submitted_by: String,
    pub created_at: Timestamp,
}

/// An entry of the plain target state: the object with the complete YAML as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetObject {
    #[serde(flatten)]
    pub object: DeploymentObject,
    pub content: String,
}

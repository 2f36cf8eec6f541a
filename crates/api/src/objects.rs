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
    /// Of a deletion: the resources stay in the clusters, without Brokkr's marks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_resources: bool,
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

/// Goes back to an earlier version: its content becomes a new deployment object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// Which version; without it, the last one before the newest whose content is another and is not barred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<SequenceId>,
    /// Leaves the content that is rolled back from open to be submitted again. Else it is barred.
    #[serde(default)]
    pub keep_open: bool,
    /// Told to whoever submits the barred content again.
    #[serde(default)]
    pub reason: String,
}

/// A content that is refused on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BarredContent {
    pub checksum: Checksum,
    /// The version that was rolled back.
    pub sequence_id: SequenceId,
    pub barred_by: String,
    pub reason: String,
    pub created_at: Timestamp,
}

/// What differs between two versions of a stack. Values of Secrets are never in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub from: SequenceId,
    pub to: SequenceId,
    pub added: usize,
    pub removed: usize,
    pub changed: usize,
    pub unchanged: usize,
    /// In the order of group, kind, namespace and name.
    pub resources: Vec<ResourceDiff>,
    /// There is more than is shown.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDiff {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub change: ResourceChange,
    /// For a changed resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDiff>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ResourceChange {
    Added,
    Removed,
    Changed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldDiff {
    /// As people write it: `spec.template.spec.containers[web].image`.
    pub path: String,
    /// Left out where the field was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub before: Option<serde_json::Value>,
    /// Left out where the field is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub after: Option<serde_json::Value>,
}

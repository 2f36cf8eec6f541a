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
    /// For a deletion marker: the resources stay in the clusters, without Brokkr's labels and annotations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_resources: bool,
    /// How many resources it contains.
    pub resources: i32,
    /// A wave begins when the one before is healthy, within so many seconds; absent: waves do not wait. From the annotations of the
    /// stack when the version was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_wait_seconds: Option<u32>,
    /// The Jobs that run again with this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rerun: Vec<JobRef>,
    /// The name of the token that submitted it.
    pub submitted_by: String,
    /// Why it was submitted, as the submitter wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The Git commit that its content comes from, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    pub created_at: Timestamp,
}

/// A Job of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct JobRef {
    pub namespace: String,
    pub name: String,
}

/// Runs Jobs of a stack again: its newest content becomes a new version that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rerun {
    /// `NAME` or `NAMESPACE/NAME`; by default, all Jobs of the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// A message and a Git commit to record with a version.
///
/// They are sent as the headers `brokkr-message` (percent-encoded) and `brokkr-commit`, because the body of a submission is
/// the manifest itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    message: Option<String>,
    commit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProvenance {
    #[error("the message is longer than {} characters", Provenance::MESSAGE_CHARACTERS)]
    LongMessage,
    #[error("the message contains control characters")]
    ControlCharacter,
    #[error("the commit is not 7 to {} hexadecimal digits", Provenance::COMMIT_DIGITS)]
    BadCommit,
}

impl Provenance {
    pub const MESSAGE_CHARACTERS: usize = 1024;
    pub const COMMIT_DIGITS: usize = 64;

    /// Trims and checks both. An empty message counts as none.
    pub fn new(message: Option<&str>, commit: Option<&str>) -> Result<Self, BadProvenance> {
        let message = message.map(str::trim).filter(|message| !message.is_empty());
        if let Some(message) = message {
            if message.chars().count() > Self::MESSAGE_CHARACTERS {
                return Err(BadProvenance::LongMessage);
            }
            if message.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
                return Err(BadProvenance::ControlCharacter);
            }
        }
        let commit = commit.map(|commit| commit.trim().to_ascii_lowercase());
        if let Some(commit) = &commit {
            let is_hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_hex || !(7..=Self::COMMIT_DIGITS).contains(&commit.len()) {
                return Err(BadProvenance::BadCommit);
            }
        }
        Ok(Self { message: message.map(ToOwned::to_owned), commit })
    }

    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    #[must_use]
    pub fn commit(&self) -> Option<&str> {
        self.commit.as_deref()
    }
}

/// An entry of the plain target state: the object with the complete YAML as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetObject {
    #[serde(flatten)]
    pub object: DeploymentObject,
    pub content: String,
}

/// Rolls back to an earlier version: its content becomes a new deployment object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// An earlier version; by default, the last one whose content differs from the newest and is not barred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<SequenceId>,
    /// Do not bar the content that is rolled back, so that it can be submitted again.
    #[serde(default)]
    pub keep_open: bool,
    /// Shown to users who submit the barred content again.
    #[serde(default)]
    pub reason: String,
    /// End the suspensions of the stack. Otherwise agents on which it is suspended keep what they have until they end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
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

/// The differences between two versions of a stack. It never contains values of Secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub from: SequenceId,
    pub to: SequenceId,
    pub added: usize,
    pub removed: usize,
    pub changed: usize,
    pub unchanged: usize,
    /// Ordered by group, kind, namespace and name.
    pub resources: Vec<ResourceDiff>,
    /// There are more differences than are shown.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDiff {
    pub group: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub change: ResourceChange,
    /// The changed fields of a changed resource.
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
    /// For example `spec.template.spec.containers[web].image`.
    pub path: String,
    /// Absent if the field was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub before: Option<serde_json::Value>,
    /// Absent if the field was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub after: Option<serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_is_trimmed_and_bounded() {
        let good = Provenance::new(Some("  fix the probe\n"), Some("ABCDEF1234")).unwrap();
        assert_eq!((good.message(), good.commit()), (Some("fix the probe"), Some("abcdef1234")));
        assert_eq!(Provenance::new(Some("  "), None), Ok(Provenance::default()));
        assert!(Provenance::new(Some(&"ä".repeat(1024)), None).is_ok());
        assert_eq!(Provenance::new(Some(&"ä".repeat(1025)), None), Err(BadProvenance::LongMessage));
        assert_eq!(Provenance::new(Some("a\u{1b}[2J"), None), Err(BadProvenance::ControlCharacter));
        for bad in ["", "abc", "abcdefg", &"a".repeat(65)] {
            assert_eq!(Provenance::new(None, Some(bad)), Err(BadProvenance::BadCommit), "{bad}");
        }
    }
}

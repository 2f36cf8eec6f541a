//! Stacks and what they target.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{SequenceId, StackId};
use crate::names::{Labels, Name};
use crate::selector::Selector;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stack {
    pub project: String,
    pub id: StackId,
    pub name: Name,
    pub labels: Labels,
    pub annotations: Labels,
    pub targets: StackTargets,
    #[serde(default, skip_serializing_if = "DriftPolicy::is_default")]
    pub drift: DriftPolicy,
    /// Its newest version.
    pub sequence_id: Option<SequenceId>,
    /// While the newest version is rolled out, or after its rollout was stopped: the version that all other agents get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_sequence_id: Option<SequenceId>,
    pub created_at: Timestamp,
    /// Set once the stack is deleted; its deletion marker is then `sequence_id`.
    pub deleted_at: Option<Timestamp>,
}

/// Creates the stack if there is none of that name, or changes the given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutStack {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftPolicy>,
}

/// What agents do about changes that others make to objects of a stack.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DriftPolicy {
    /// They put the objects back.
    #[default]
    Repair,
    /// They report the changes, and leave the objects as they are until the next version.
    Report,
}

impl DriftPolicy {
    /// Returns whether drift is repaired, as it is unless a stack says otherwise.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which agents get a stack: one by one, by selector, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StackTargets {
    /// Names of agents. Ids are also accepted.
    #[serde(default)]
    pub agents: Vec<String>,
    #[serde(default)]
    pub selectors: Vec<Selector>,
}

/// Deletes the stored contents of a deleted stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeStack {
    /// Recorded in the audit log; at most 500 bytes.
    pub reason: String,
}

/// A stack whose contents were deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgedStack {
    pub stack_id: StackId,
    pub stack_name: String,
    /// The number of versions whose content was deleted now.
    pub versions: u64,
}

/// The annotation of a stack that makes its waves wait for each other.
pub const WAVE_WAIT: &str = "brokkr.io/wave-wait";
/// The annotation of a stack that says for how many seconds a wave may take to become healthy.
pub const WAVE_WAIT_SECONDS: &str = "brokkr.io/wave-wait-seconds";
/// How long a wave may take to become healthy, unless the stack says otherwise.
pub const WAVE_WAIT_DEFAULT: u32 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWaveWait {
    #[error("the annotation {WAVE_WAIT} must be \"healthy\"")]
    Mode,
    #[error("the annotation {WAVE_WAIT_SECONDS} must be a whole number from 1 to 86400")]
    Seconds,
}

/// Returns for how long the waves of a stack with these annotations wait for each other; none if they do not wait.
pub fn wave_wait(annotations: &Labels) -> Result<Option<u32>, BadWaveWait> {
    let seconds = annotations.get(WAVE_WAIT_SECONDS).map(|text| {
        let seconds = text.parse::<u32>().ok().filter(|seconds| (1..=86_400).contains(seconds));
        // The database reads the digits.
        seconds.filter(|seconds| seconds.to_string() == *text).ok_or(BadWaveWait::Seconds)
    });
    let seconds = seconds.transpose()?.unwrap_or(WAVE_WAIT_DEFAULT);
    match annotations.get(WAVE_WAIT).map(String::as_str) {
        None => Ok(None),
        Some("healthy") => Ok(Some(seconds)),
        Some(_) => Err(BadWaveWait::Mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_says_in_its_annotations_whether_its_waves_wait_and_for_how_long() {
        let read = |list: &[(&str, &str)]| {
            wave_wait(&list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(WAVE_WAIT, "healthy")]), Ok(Some(300)));
        assert_eq!(read(&[(WAVE_WAIT, "healthy"), (WAVE_WAIT_SECONDS, "900")]), Ok(Some(900)));
        assert_eq!(read(&[(WAVE_WAIT_SECONDS, "900")]), Ok(None));
        for mode in ["", "ready", "true", "Healthy"] {
            assert_eq!(read(&[(WAVE_WAIT, mode)]), Err(BadWaveWait::Mode), "{mode}");
        }
        for seconds in ["", "0", "86401", "5m", "-1", "+5", "05"] {
            let annotations = [(WAVE_WAIT, "healthy"), (WAVE_WAIT_SECONDS, seconds)];
            assert_eq!(read(&annotations), Err(BadWaveWait::Seconds), "{seconds}");
        }
    }
}

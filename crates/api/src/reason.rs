//! Why something is in its current state.
//!
//! A [`Reason`] is for programs: a closed set of variants with typed details. A [`Message`] is for people:
//! text that no program may search or compare. Both are sent side by side (`reason`, `details`, `message`),
//! because a peer that does not know a reason yet still has to show its message.
//!
//! | file       | contents                                               |
//! |------------|--------------------------------------------------------|
//! | `object`   | [`ObjectRef`]: a reference to a Kubernetes object       |
//! | `message`  | [`Message`]: text without string methods                |
//! | `wire`     | `reason` and `details` as JSON; unknown reasons         |
//! | `sentence` | the English sentence of each reason, made in one place  |

mod message;
mod object;
mod sentence;
#[cfg(test)]
mod tests;
mod wire;

use serde::{Deserialize, Serialize};

pub use self::message::Message;
pub use self::object::ObjectRef;
use crate::ids::{Checksum, SuspensionId};
use crate::why::Hop;

/// Why a step failed, waits, or succeeded: one word and typed details.
///
/// The words are part of the API. Where Kubernetes has a word for a reason, that word is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(remote = "Self", tag = "reason", content = "details")]
pub enum Reason {
    /// Nothing to explain.
    #[default]
    #[serde(rename = "")]
    #[strum(serialize = "")]
    None,

    // ── The content ──
    /// The broker did not deliver the content.
    FetchFailed,
    /// The content does not have the announced checksum.
    ChecksumMismatch {
        expected: Checksum,
        found: Checksum,
    },
    /// The cached content could not be stored, read or deleted in the cluster.
    ContentCacheFailed,
    /// The agent cannot parse the content.
    Unreadable,
    /// Agent and broker parse the content differently.
    ParsedDifferently,
    /// The manifest of a cluster-scoped object sets a namespace.
    NotNamespaced {
        kind: String,
    },
    /// The API server did not say which kinds it serves.
    DiscoveryFailed,
    /// The cluster does not serve this kind.
    UnknownKind {
        kind: String,
    },
    /// The definition is established, but the API server does not serve the kind yet.
    NotServed {
        kind: String,
    },

    // ── Grants and rights ──
    /// The project has no account to act as on this agent.
    NoAccount {
        project: String,
    },
    /// The grant names an account that agents may not act as.
    AccountNotAllowed {
        project: String,
        account: String,
    },
    /// The project's grant does not cover an object.
    NotCovered(Uncovered),
    /// The account that the agent acts as lacks a permission in the cluster.
    Forbidden {
        /// `system:serviceaccount:shop:brokkr-shop`; none for the agent's own account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verbs: Vec<String>,
        /// `deployments.apps`
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    /// Brokkr's admission policy in the cluster refused the write.
    Fenced,
    /// The object is in the agent's own namespace, which no stack may change.
    AgentNamespace {
        namespace: String,
    },
    /// A binding names a role that this agent did not deliver and that `--allow-role` does not list.
    RoleNotDelivered {
        /// `NAME` for a ClusterRole, `NAMESPACE/NAME` for a Role.
        role: String,
    },
    /// A role would grant a permission that the account itself does not have.
    GrantsTooMuch {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<String>,
        /// The rules, as the API server names them.
        rules: Vec<String>,
    },

    // ── Responses of the API server ──
    Invalid {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<String>,
    },
    /// A change to a field that cannot be changed.
    Immutable {
        fields: Vec<String>,
    },
    /// An admission webhook refused the write.
    WebhookDenied {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        webhook: Option<String>,
    },
    QuotaExceeded {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quota: Option<String>,
    },
    NamespaceNotFound {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    NamespaceTerminating {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    NotFound,
    TooLarge,
    Conflict,
    TooManyRequests,
    /// An HTTP status without a Kubernetes reason.
    HttpStatus {
        code: u16,
    },
    ApiServerUnreachable,

    // ── Ownership, drift ──
    /// The object belongs to another stack or agent.
    OwnedByOther {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// Changes by others were reverted.
    Drift {
        repairs: u32,
    },
    /// Another field manager keeps changing the same fields.
    Contested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<String>,
        /// Repairs without a quiet minute in between.
        #[serde(default)]
        repairs: u32,
    },
    ContestOver,
    /// Other clients changed objects, and the stack says that drift is only reported.
    DriftReported {
        objects: u32,
    },
    /// Other clients changed these fields of the object, and they are not repaired.
    ChangedByOthers {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<String>,
    },
    /// Other clients deleted the object, and it is not created again.
    GoneByOthers,

    // ── Order ──
    /// What comes later is not written before all objects of this wave are ready.
    WaitingForWave {
        wave: Wave,
    },
    /// The wave is not ready within its time, or a Job of it has failed: what comes later stays unwritten.
    WaveNotReady {
        wave: Wave,
    },
    /// The object is a Helm hook that Brokkr does not run: it was left out.
    HookLeftOut {
        /// The hook events, as the chart names them.
        hook: String,
    },

    // ── Suspensions ──
    /// A suspension covers the stack or an object of it.
    Suspended,
    NotSuspended,
    /// A suspension is over; `id` names it.
    SuspensionEnded {
        id: SuspensionId,
    },
    /// Other clients changed the object while it was suspended.
    Edited {
        /// What they changed, as a strategic merge patch; absent if it is too large. Without the values of a Secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<serde_json::Value>,
    },
    /// Other clients deleted the object while it was suspended.
    DeletedByOthers,

    // ── Prune and removal ──
    /// A prune is so large that it needs approval.
    PruneNeedsApproval {
        delete: u32,
        total: u32,
    },
    /// Of a stack: it waits until deleted objects are gone.
    WaitingForDeletion,
    /// Of an object: it was deleted, but still exists, without finalizers.
    Terminating,
    /// Of an object: it was deleted, but finalizers keep it.
    Finalizer {
        finalizers: Vec<String>,
    },
    /// Another stack is about to take over the object.
    HandOver {
        stack: String,
    },
    /// The newest content of another stack is not known yet and may contain the object.
    OtherContentPending,
    /// The objects in a namespace, or of the kind that a definition defines, could not be listed.
    CannotInspect,
    /// The object no longer exists; `uid` is the one that it had.
    Gone {
        uid: String,
    },
    /// The object was left in the cluster.
    Left(LeftBecause),

    // ── The agent itself ──
    CannotWatch {
        kind: String,
    },
    BrokerUnreachable,
    RecordNotWritten,
    /// A newer run of the agent writes this record.
    Superseded,
    /// Writes by this process of the agent are suspended.
    WritesSuspended,
    AgentInactive,

    // ── Health, in the words of Kubernetes ──
    Missing,
    NotReady,
    /// Ready, but not for long enough to count as healthy.
    Stabilizing {
        seconds: u32,
    },
    ErrImagePull,
    ImagePullBackOff,
    InvalidImageName,
    ErrImageNeverPull,
    RegistryUnavailable,
    ImageInspectError,
    CreateContainerConfigError,
    CreateContainerError,
    RunContainerError,
    CrashLoopBackOff,
    OOMKilled,
    /// A container exited with an error.
    Error,
    Unschedulable,
    VolumeClaimPending,
    StartupProbeFailing,
    ReadinessProbeFailing,
    /// An init container does not end.
    ContainersNotInitialized,
    /// A Job has used all of its retries.
    BackoffLimitExceeded,
    /// A Job or Pod has used all of its time.
    DeadlineExceeded,
    /// The policy of a Job for failed Pods ended it.
    PodFailurePolicy,
    /// Indexes of a Job have failed.
    FailedIndexes,
    /// Too many indexes of a Job have failed.
    MaxFailedIndexesExceeded,

    // ── Conditions ──
    Valid,
    NotFetched,
    Refused,
    Fetching,
    Announcing,
    Preparing,
    WaitingForPrerequisites,
    Validating,
    Applying,
    Applied,
    NotApplied,
    Pruning,
    PrunePending,
    NothingToPrune,
    Settling,
    Stopped,
    Removal,
    Removing,
    Ready,
    NoDrift,
    Changed,
    RepairFailed,
    Uncontested,
    Failed,

    /// A word that this program does not know: of Kubernetes, of a controller, or of a newer peer.
    #[serde(skip)]
    #[strum(disabled)]
    Other(String),
}

/// Objects of a stack that are applied together: a wave, or the Helm hooks of one weight. Ordered as they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wave {
    /// Hooks before the rest of the stack, by their weight.
    HooksBefore(i64),
    Number(i64),
    /// Hooks after the rest of the stack, by their weight.
    HooksAfter(i64),
}

/// What a grant does not cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncovered {
    Namespace(String),
    /// `Deployment.apps`
    Kind(String),
    ClusterScoped,
}

/// Why an object was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBecause {
    /// The stack was deleted without its resources.
    Requested,
    /// Annotation `brokkr.io/prune: keep`.
    KeepAnnotation,
    /// It existed before Brokkr.
    Preexisting,
    /// Another object of this stack stays and needs it.
    NeededBy(Box<ObjectRef>),
    /// Another stack needs it.
    NeededByAnotherStack,
    /// It contains objects of others.
    Contains(Vec<String>),
    /// It has an ownerReference, so its owner decides about its deletion.
    OwnerReference,
    /// Another stack or agent owns it by now: `stack 0199…`.
    OwnedByOther(String),
    /// Another client has removed the label `brokkr.io/agent`, and no agent may delete an object without it.
    LabelRemoved,
}

/// What has to appear in the cluster before a step can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prerequisite {
    Namespace,
    Definition,
}

impl Reason {
    /// Returns the word for programs.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Other(word) => word,
            known => known.into(),
        }
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Returns this reason, or `otherwise` if this one is `None`.
    #[must_use]
    pub fn or(self, otherwise: Self) -> Self {
        if self.is_none() { otherwise } else { self }
    }

    /// Returns the reason for a word of Kubernetes or one of its controllers.
    #[must_use]
    pub fn from_kubernetes(word: &str) -> Self {
        match word {
            "" => Self::None,
            "ErrImagePull" => Self::ErrImagePull,
            "ImagePullBackOff" => Self::ImagePullBackOff,
            "InvalidImageName" => Self::InvalidImageName,
            "ErrImageNeverPull" => Self::ErrImageNeverPull,
            "RegistryUnavailable" => Self::RegistryUnavailable,
            "ImageInspectError" => Self::ImageInspectError,
            "CreateContainerConfigError" => Self::CreateContainerConfigError,
            "CreateContainerError" => Self::CreateContainerError,
            "RunContainerError" => Self::RunContainerError,
            "CrashLoopBackOff" => Self::CrashLoopBackOff,
            "OOMKilled" => Self::OOMKilled,
            "Error" => Self::Error,
            "Unschedulable" => Self::Unschedulable,
            "BackoffLimitExceeded" => Self::BackoffLimitExceeded,
            "DeadlineExceeded" => Self::DeadlineExceeded,
            "PodFailurePolicy" => Self::PodFailurePolicy,
            "FailedIndexes" => Self::FailedIndexes,
            "MaxFailedIndexesExceeded" => Self::MaxFailedIndexesExceeded,
            "Conflict" => Self::Conflict,
            "NotFound" => Self::NotFound,
            "TooManyRequests" => Self::TooManyRequests,
            "NotReady" => Self::NotReady,
            "Ready" => Self::Ready,
            "Failed" => Self::Failed,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Returns whether an image cannot be pulled.
    #[must_use]
    pub fn is_image_pull(&self) -> bool {
        matches!(
            self,
            Self::ErrImagePull
                | Self::ImagePullBackOff
                | Self::InvalidImageName
                | Self::ErrImageNeverPull
                | Self::RegistryUnavailable
                | Self::ImageInspectError
        )
    }

    /// Returns whether a container exited although it should run.
    #[must_use]
    pub fn is_crash(&self) -> bool {
        matches!(self, Self::CrashLoopBackOff | Self::OOMKilled | Self::Error)
    }

    /// Returns whether a Job failed and is not retried.
    #[must_use]
    pub fn is_failed_job(&self) -> bool {
        matches!(
            self,
            Self::BackoffLimitExceeded
                | Self::DeadlineExceeded
                | Self::PodFailurePolicy
                | Self::FailedIndexes
                | Self::MaxFailedIndexesExceeded
        )
    }

    /// Returns whether someone may permit the write without a change to the content.
    #[must_use]
    pub fn is_refused_permission(&self) -> bool {
        matches!(self, Self::Forbidden { .. } | Self::Fenced | Self::GrantsTooMuch { .. })
    }

    /// Returns whether Pods cannot run, or a Job cannot complete, without a change: to the content, a Secret or a registry.
    #[must_use]
    pub fn needs_a_change(&self) -> bool {
        self.is_crash()
            || self.is_image_pull()
            || self.is_failed_job()
            || matches!(
                self,
                Self::CreateContainerConfigError | Self::CreateContainerError | Self::RunContainerError
            )
    }

    /// Returns whether both reasons describe the same problem. While an image cannot be pulled or a container
    /// keeps exiting, Kubernetes alternates between several words.
    #[must_use]
    pub fn is_same_problem(&self, other: &Self) -> bool {
        self.code() == other.code()
            || self.is_image_pull() && other.is_image_pull()
            || self.is_crash() && other.is_crash()
    }

    /// Returns the hop at which a delivery fails for this reason; none if the reason does not determine it.
    #[must_use]
    pub fn hop(&self) -> Option<Hop> {
        match self {
            Self::FetchFailed | Self::ChecksumMismatch { .. } | Self::ContentCacheFailed => {
                Some(Hop::Fetched)
            }
            Self::Unreadable
            | Self::ParsedDifferently
            | Self::NotNamespaced { .. }
            | Self::DiscoveryFailed => Some(Hop::Verified),
            Self::UnknownKind { .. }
            | Self::NotServed { .. }
            | Self::NoAccount { .. }
            | Self::AccountNotAllowed { .. }
            | Self::NotCovered(_)
            | Self::Forbidden { .. }
            | Self::Fenced
            | Self::AgentNamespace { .. }
            | Self::RoleNotDelivered { .. }
            | Self::GrantsTooMuch { .. }
            | Self::Immutable { .. }
            | Self::WebhookDenied { .. }
            | Self::QuotaExceeded { .. }
            | Self::NamespaceNotFound { .. }
            | Self::NamespaceTerminating { .. }
            | Self::OwnedByOther { .. }
            | Self::WaitingForWave { .. }
            | Self::WaveNotReady { .. }
            | Self::CannotWatch { .. } => Some(Hop::Applied),
            Self::PruneNeedsApproval { .. }
            | Self::WaitingForDeletion
            | Self::Terminating
            | Self::Finalizer { .. }
            | Self::HandOver { .. }
            | Self::OtherContentPending
            | Self::CannotInspect => Some(Hop::Pruned),
            reason if reason.is_image_pull() || reason.is_failed_job() => Some(Hop::Healthy),
            Self::CrashLoopBackOff
            | Self::OOMKilled
            | Self::Error
            | Self::Unschedulable
            | Self::VolumeClaimPending
            | Self::StartupProbeFailing
            | Self::ReadinessProbeFailing
            | Self::ContainersNotInitialized
            | Self::CreateContainerConfigError
            | Self::CreateContainerError
            | Self::RunContainerError
            | Self::NotReady
            | Self::Stabilizing { .. }
            | Self::Missing => Some(Hop::Healthy),
            _ => None,
        }
    }

    /// Returns what has to appear in the cluster before a step that failed for this reason can succeed.
    #[must_use]
    pub fn waits_for(&self) -> Option<Prerequisite> {
        match self {
            Self::NamespaceNotFound { .. } | Self::NamespaceTerminating { .. } => {
                Some(Prerequisite::Namespace)
            }
            Self::UnknownKind { .. }
            | Self::NotServed { .. }
            | Self::NotFound
            | Self::HttpStatus { code: 404 } => Some(Prerequisite::Definition),
            _ => None,
        }
    }
}

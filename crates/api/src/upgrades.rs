//! Upgrades of agents: an admin offers an image, and agents whose owners allow it replace themselves by it, in waves.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::Display;
use utoipa::ToSchema;

use crate::ids::UpgradeId;
use crate::rollouts::{Pending, RolloutFigures, RolloutPolicy, RolloutState, StopReason};
use crate::selector::Selector;

/// The longest message of a report, in bytes.
pub const LONGEST_MESSAGE: usize = 1000;

/// Offers an image to agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgentUpgrade {
    /// The image, by digest: `REPOSITORY@sha256:…`. Agents refuse other repositories than the one that their owner has allowed.
    pub image: String,
    /// The version that the image contains. An agent with this version already is not upgraded.
    pub version: String,
    /// Only the agents with these labels; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Overrides the installation's policy for this upgrade.
    #[serde(default)]
    pub policy: RolloutPolicy,
}

/// What an agent is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeOffer {
    pub id: UpgradeId,
    pub image: String,
    pub version: String,
}

/// How far an agent has come with an upgrade, in order; the last two are ends without the new version.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UpgradeStep {
    /// The agent has written the new image into its Deployment.
    Begun,
    /// The new process has proved itself, and opens its session.
    TakenOver,
    /// The new process has compared every stack once and reported this: the upgrade is confirmed.
    Reconciled,
    /// The former image was restored, and its process serves again.
    Restored,
    /// The agent has not begun: the owner of the cluster has to do something first.
    Refused,
}

impl UpgradeStep {
    /// Returns whether nothing follows.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Reconciled | Self::Restored | Self::Refused)
    }
}

/// Why an upgrade was refused, or the former image restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum UpgradeReason {
    /// The owner of the cluster allows no upgrades, or only from another repository.
    NotAllowed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allowed: Option<String>,
    },
    /// The offered version is lower than the agent's.
    LowerVersion { current: String },
    /// The image contains another version than the offer says.
    OtherVersion { found: String },
    /// The new version needs other permissions, another kind of records or another fence. The owner has to run the command.
    InstallationDiffers { command: String },
    /// The Pod of the new version did not start: for example, its image could not be pulled.
    NotStarted { message: String },
    /// A check of the new process before it took over failed.
    NotProved { check: ProofCheck, message: String },
    /// The new process took over, but was not ready in time.
    NotConfirmed { seconds: u32 },
    /// From a newer agent.
    #[serde(other)]
    Other,
}

/// What the new process checks before it takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ProofCheck {
    /// It reads its identity, its stored state and every record.
    State,
    /// It reaches the broker with its credential.
    Broker,
    /// The fence is active.
    Fence,
}

impl fmt::Display for UpgradeReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed { allowed: None } => {
                out.write_str("the owner of the cluster has not allowed upgrades (join with --allow-upgrade)")
            }
            Self::NotAllowed { allowed: Some(repository) } => {
                write!(out, "the owner of the cluster allows only images of {repository}")
            }
            Self::LowerVersion { current } => {
                write!(
                    out,
                    "the agent has {current}; only the owner of the cluster can give it a lower version"
                )
            }
            Self::OtherVersion { found } => write!(out, "the image contains version {found}"),
            Self::InstallationDiffers { command } => {
                write!(
                    out,
                    "the version needs other permissions; the owner of the cluster has to run: {command}"
                )
            }
            Self::NotStarted { message } => write!(out, "the new Pod did not start: {message}"),
            Self::NotProved { check, message } => {
                write!(out, "the new version failed the check `{check}`: {message}")
            }
            Self::NotConfirmed { seconds } => {
                write!(out, "the new version was not ready within {seconds} s after the image was changed")
            }
            Self::Other => out.write_str("for a reason that this program does not know"),
        }
    }
}

/// What an agent reports about an upgrade. The same report may arrive again; an earlier step never follows a later one, except that
/// `begun` of the same upgrade may follow `restored` or `refused` if it is offered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeReport {
    pub id: UpgradeId,
    pub step: UpgradeStep,
    /// The version of the process that reports.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<UpgradeReason>,
    /// By the clock of the agent.
    pub at: Timestamp,
}

/// The last report of an agent about an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedUpgrade {
    pub id: UpgradeId,
    /// The version that the upgrade offers.
    pub version: String,
    pub step: UpgradeStep,
    /// When the broker received it.
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<UpgradeReason>,
}

/// An upgrade of agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentUpgrade {
    pub id: UpgradeId,
    pub image: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    pub state: RolloutState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The current wave, counted from 1, and their number.
    pub wave: u32,
    pub waves: u32,
    pub policy: RolloutPolicy,
    pub figures: RolloutFigures,
    pub allowed_bad: u64,
    pub in_flight_limit: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    pub soaked_seconds: u32,
    pub created_by: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// How far one agent has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentUpgradeStatus {
    pub agent: String,
    /// The version that the agent reported when it last opened a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the upgrade is offered to it.
    pub released: bool,
    /// The last step that it has reported, and when the broker received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<UpgradeStep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<UpgradeReason>,
}

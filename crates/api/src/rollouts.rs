//! Rollouts: how a new version of a stack reaches the agents, in waves.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::Display;
use utoipa::ToSchema;

use crate::tokens::Role;
use crate::{Selector, SequenceId, StackId};

/// The largest number of waves.
const MOST_WAVES: usize = 20;
/// The largest number of approvals of a gate.
const MOST_APPROVALS: u32 = 10;
/// A week.
const LONGEST_SOAK: u32 = 7 * 24 * 3600;

/// How new versions are rolled out. What is absent comes from the policy of the next wider scope: submission, stack, project,
/// installation, and at last the built-in policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutPolicy {
    /// Whether new versions are rolled out in waves; built in true. If false, every agent gets a new version at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<bool>,
    /// The waves, in order. Built in: `1`, `1%`, `10%`, `50%` and `100%`. After the last one come all other agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<Vec<Wave>>,
    /// How many agents may have the version without a verdict at a time; built in `10%`. Never more than 10,000, nor than are
    /// healthy with it, but at least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "10%")]
    pub max_in_flight: Option<Share>,
    /// The rollout stops if more than this percentage of the agents that it has reached is bad; built in 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bad_percent: Option<u8>,
    /// The next wave begins when this percentage of the agents is healthy; built in 95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_healthy_percent: Option<u8>,
    /// How long a wave must stay healthy before the next one begins. Built in: ten minutes, two minutes below 100 agents, and
    /// none for the first version of a stack and for a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak_seconds: Option<u32>,
}

impl RolloutPolicy {
    /// Checks that the values make sense. Returns what does not.
    pub fn check(&self) -> Result<(), String> {
        match self.waves.as_deref() {
            Some([]) => return Err("waves must not be empty; leave it out for the built-in waves".to_owned()),
            Some(waves) if waves.len() > MOST_WAVES => {
                return Err(format!("a rollout has at most {MOST_WAVES} waves"));
            }
            _ => {}
        }
        let gates = self.waves.iter().flatten().filter_map(|wave| wave.gate.as_ref());
        for gate in gates {
            if !(1..=MOST_APPROVALS).contains(&gate.approvals) {
                return Err(format!("a gate needs between 1 and {MOST_APPROVALS} approvals"));
            }
            if gate.timeout_seconds == Some(0) {
                return Err("timeout_seconds must be at least 1".to_owned());
            }
            if !gate.role.includes(Role::Deployer) {
                return Err(format!("the role {} can not approve; use deployer, owner or admin", gate.role));
            }
        }
        let percentages =
            [("max_bad_percent", self.max_bad_percent), ("min_healthy_percent", self.min_healthy_percent)];
        for (name, value) in percentages {
            if value.is_some_and(|value| value > 100) {
                return Err(format!("{name} must be at most 100"));
            }
        }
        if self.soak_seconds.is_some_and(|seconds| seconds > LONGEST_SOAK) {
            return Err(format!("soak_seconds must be at most {LONGEST_SOAK}"));
        }
        Ok(())
    }
}

/// The policies that apply to a stack, or to a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutPolicies {
    pub installation: RolloutPolicy,
    pub project: RolloutPolicy,
    /// Empty if no stack was asked for.
    pub stack: RolloutPolicy,
    /// What these add up to, with what is built in.
    pub effective: RolloutPolicy,
}

/// A part of the agents of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wave {
    /// Only agents with these labels; the size is relative to them.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// How many agents have the version after this wave.
    #[schema(value_type = String, example = "10%")]
    pub size: Share,
    /// Who has to approve before the wave begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
}

impl Wave {
    /// Returns a wave of any agents.
    #[must_use]
    pub fn of(size: Share) -> Self {
        Self { selector: None, size, gate: None }
    }
}

/// Approvals that a wave needs before it begins: of users, or of a pipeline that receives `rollout.gate_opened`, makes its own
/// checks, and approves or denies with a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// How many tokens have to approve.
    #[serde(default = "one")]
    pub approvals: u32,
    /// The role that they need.
    #[serde(default = "deployer")]
    pub role: Role,
    /// Whether the token that submitted the version may not approve it.
    #[serde(default)]
    pub not_author: bool,
    /// The rollout stops if the approvals are not there after this time; absent: it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

fn one() -> u32 {
    1
}

fn deployer() -> Role {
    Role::Deployer
}

/// A number of agents: `3`, or `10%` of them, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    Count(u64),
    Percent(u8),
}

impl Share {
    pub const ALL: Self = Self::Percent(100);

    /// Returns how many of `total` this is, at most all of them.
    #[must_use]
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Count(count) => count.min(total),
            Self::Percent(percent) => {
                let part = (u128::from(total) * u128::from(percent)).div_ceil(100);
                u64::try_from(part).unwrap_or(total).min(total)
            }
        }
    }
}

/// Not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of agents, such as 3 or 10%")]
pub struct BadShare(String);

impl FromStr for Share {
    type Err = BadShare;

    fn from_str(text: &str) -> Result<Self, BadShare> {
        let bad = || BadShare(text.to_owned());
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent).ok_or_else(bad)
            }
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Count).ok_or_else(bad),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(out, "{count}"),
            Self::Percent(percent) => write!(out, "{percent}%"),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where a rollout stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, Display, strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RolloutState {
    /// The version is being released to the agents of a wave, or these are not healthy yet.
    Running,
    /// The agents of the wave are healthy, and have to stay so for a while.
    Soaking,
    /// The next wave needs approvals.
    Gated,
    /// A person has paused it: agents that have the version keep it, and no other agent gets it.
    Paused,
    /// The version is withdrawn: agents that have begun it keep it, and no other agent begins it.
    Stopped,
    /// Every agent gets the version.
    Completed,
    /// A newer version is being rolled out instead, or the targets have changed again.
    Superseded,
    /// Ended by a user, or because the broker's database was restored. As stopped, for good.
    Aborted,
}

impl RolloutState {
    /// Returns whether the rollout has ended.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Superseded | Self::Aborted)
    }
}

/// Why a rollout stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StopReason {
    /// Too many agents are bad.
    TooManyBad { bad: u64, allowed: u64 },
    /// Too many agents were bad with their previous version already, so that they prove nothing.
    TooManyExcused { excused: u64 },
    /// A person has stopped it.
    Person { reason: String },
    /// A token has denied its approval.
    Denied { by: String, reason: String },
    /// The approvals for a wave were not there in time.
    GateTimedOut { wave: u32 },
    /// The broker's database was restored.
    Restored,
}

impl fmt::Display for StopReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyBad { bad, allowed } => {
                let (agents, are) = if *bad == 1 { ("agent", "is") } else { ("agents", "are") };
                write!(out, "{bad} {agents} {are} bad, {allowed} allowed")
            }
            Self::TooManyExcused { excused } => {
                write!(out, "{excused} agents were bad before, and too few others are healthy")
            }
            Self::Person { reason } => out.write_str(reason),
            Self::Denied { by, reason } => write!(out, "denied by {by}: {reason}"),
            Self::GateTimedOut { wave } => {
                write!(out, "the approvals for wave {wave} were not there in time")
            }
            Self::Restored => out.write_str("the broker's database was restored"),
        }
    }
}

/// What a rollout waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pending {
    /// Verdicts of agents that have the version: only this many may be without one.
    InFlight { limit: u64 },
    /// This many healthy agents.
    Healthy { needed: u64 },
    /// This many agents, which have missed some polls: it is not known yet whether they are gone.
    Late { agents: u64 },
    /// The rest of the time for which the agents have to stay healthy.
    Soak { left_seconds: u64 },
    /// The maintenance windows of this many agents, or the end of a freeze. The next opens at this time.
    Window {
        agents: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opens_at: Option<Timestamp>,
    },
    /// Approvals for the wave: so far `given` of `needed`.
    Gate { given: u32, needed: u32 },
    /// From a newer broker.
    #[serde(other)]
    Other,
}

/// What a person says about a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRollout {
    /// Recorded in the audit log; at most 1000 bytes. Needed for `promote`, `skip`, `stop`, `abort` and
    /// `deny`.
    #[serde(default)]
    pub reason: String,
    /// Refuse the command if the rollout is at another wave, counted from 1. Otherwise an approval could open the gate after the one
    /// that it was meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<u32>,
}

/// How many agents are in which state. The figures from `healthy` on add up to `released`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutFigures {
    /// Active agents that the stack targets; if it is widened, only those that it has gained.
    pub members: u64,
    /// Members that the version is released to.
    pub released: u64,
    pub healthy: u64,
    /// Failed, degraded for a minute, without a verdict for too long, or silent since after the release.
    pub bad: u64,
    /// Bad now and with their previous version: they do not stop the rollout.
    pub excused: u64,
    /// Silent since before the release, or not allowed to begin: they get the version when they can.
    pub owed: u64,
    /// A prune waits for approval.
    pub waiting: u64,
    /// Without a verdict yet.
    pub in_flight: u64,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    pub project: String,
    pub stack_id: StackId,
    pub stack_name: String,
    /// The version that is rolled out; if it widens one, an id of its own.
    pub sequence_id: SequenceId,
    /// The version that it gives to agents that the stack has gained by other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widens: Option<SequenceId>,
    /// Whether it deletes the stack.
    pub is_deletion: bool,
    /// The version that agents have to which it is not released.
    pub base_sequence_id: Option<SequenceId>,
    pub state: RolloutState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The current wave, counted from 1, and their number.
    pub wave: u32,
    pub waves: u32,
    pub policy: RolloutPolicy,
    pub figures: RolloutFigures,
    /// How many agents may be bad before the rollout stops.
    pub allowed_bad: u64,
    /// How many agents may have the version without a verdict at a time. When the rollout stops, at most these and the allowed
    /// ones are bad.
    pub in_flight_limit: u64,
    /// What it waits for, since its agents were last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// How long the wave has been healthy, of `policy.soak_seconds`.
    pub soaked_seconds: u32,
    pub created_by: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A step of a rollout, and what it was decided from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutDecision {
    /// Counted from 0.
    pub number: u32,
    pub at: Timestamp,
    /// The state that it led to.
    pub state: RolloutState,
    /// The wave that it led to, counted from 1.
    pub wave: u32,
    /// The agents as they were counted.
    pub figures: RolloutFigures,
    /// What the rollout waited for then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_never_more_than_all() {
        for (share, total, expected) in
            [("1", 0, 0), ("1", 7, 1), ("9", 7, 7), ("1%", 2, 1), ("10%", 1001, 101), ("100%", 7, 7)]
        {
            let share: Share = share.parse().expect("a share");
            assert_eq!(share.of(total), expected, "{share} of {total}");
        }
        for bad in ["", "0", "0%", "101%", "-1", "1.5%", "%"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }
}

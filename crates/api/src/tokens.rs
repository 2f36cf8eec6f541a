//! Roles, API tokens, join tokens, and the identity of the caller.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{AgentId, TokenId};
use crate::names::{Labels, Name};

/// The default lifetime of an API token.
pub const API_TOKEN_SECONDS: u32 = 90 * 24 * 3600;
/// The maximum lifetime of an API token.
pub const LONGEST_API_TOKEN_SECONDS: u32 = 366 * 24 * 3600;
/// How long a replaced token stays valid by default.
pub const OVERLAP_SECONDS: u32 = 24 * 3600;
/// How long a replaced token stays valid at most.
pub const LONGEST_OVERLAP_SECONDS: u32 = 7 * 24 * 3600;
/// The default lifetime of a join token.
pub const JOIN_TOKEN_SECONDS: u32 = 3600;
/// The maximum lifetime of a join token.
pub const LONGEST_JOIN_TOKEN_SECONDS: u32 = 7 * 24 * 3600;

/// What a person or machine may do: viewer, deployer and owner in a project, admin and auditor over the
/// installation. There is no order between all of them: ask [`Role::includes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// Reads its project, without the values of Secrets.
    Viewer,
    /// Also submits, targets, rolls back and deletes stacks of its project, lifts bars and approves prunes.
    Deployer,
    /// Also gives tokens, manages webhooks and reads the audit log of its project.
    Owner,
    /// Everything, in every project.
    Admin,
    /// Reads everything of every project and the audit log, without the values of Secrets. Changes nothing.
    Auditor,
}

impl Role {
    /// Whether this role may do all that the other one may.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        match self {
            Self::Viewer => matches!(other, Self::Viewer),
            Self::Deployer => matches!(other, Self::Viewer | Self::Deployer),
            Self::Owner => matches!(other, Self::Viewer | Self::Deployer | Self::Owner),
            Self::Admin => true,
            Self::Auditor => matches!(other, Self::Viewer | Self::Auditor),
        }
    }

    /// Returns whether it is a role for the whole installation, and so in every project.
    #[must_use]
    pub fn is_over_installation(self) -> bool {
        matches!(self, Self::Admin | Self::Auditor)
    }

    /// Returns whether it may create tokens with this role, which cannot exceed its own.
    #[must_use]
    pub fn may_give(self, role: Self) -> bool {
        matches!(self, Self::Owner | Self::Admin) && self.includes(role)
    }

    /// Returns whether it may read the values of Secrets. Roles that may replace them also may read them.
    #[must_use]
    pub fn reads_secrets(self) -> bool {
        self.includes(Self::Deployer)
    }
}

/// Asks for an API token in the project that the caller acts in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// For people: what the token is for. It shows in histories and in the audit log.
    pub name: Name,
    pub role: Role,
    /// How long it is valid: 90 days if not given, 366 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiToken {
    pub id: TokenId,
    pub project: String,
    pub name: String,
    pub role: Role,
    /// The token that made it; none for the first one.
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// An API token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewApiToken {
    /// Shown once, stored only as a hash.
    pub token: String,
    #[serde(flatten)]
    pub info: ApiToken,
}

/// Asks for a token in the place of another one: same name, role and project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateApiToken {
    /// For how long the old one is still good, too: a day if not given, a week at most. Never longer than it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u32>,
    /// How long the new one is valid: as long as the old one was from its making to its end if not given, 366 days at
    /// most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// An API token that was just made in the place of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedApiToken {
    /// Shown once, stored only as a hash.
    pub token: String,
    #[serde(flatten)]
    pub info: ApiToken,
    /// The old one, with the end that it has now.
    pub replaces: ApiToken,
}

/// Asks for a token with which one agent can join: one use, bound to name and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    pub agent_name: Name,
    #[serde(default)]
    pub labels: Labels,
    /// How long it can be used: an hour if not given, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    pub id: TokenId,
    /// Shown once, stored only as a hash.
    pub token: String,
    pub agent_name: Name,
    pub labels: Labels,
    pub expires_at: Timestamp,
}

/// A join token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenInfo {
    pub id: TokenId,
    pub agent_name: String,
    pub labels: Labels,
    /// The agent that gets a new key by it, if it is for one that exists.
    pub rejoins: Option<AgentId>,
    /// The agent that used it.
    pub used_by: Option<AgentId>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    pub token_id: TokenId,
    pub name: String,
    /// The project that the token acts in: its own; or, for admins and auditors, the one that they named.
    pub project: String,
    pub role: Role,
    pub expires_at: Option<Timestamp>,
    /// The version of the broker that answered. Empty from a broker that does not send it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_version: String,
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    #[test]
    fn an_auditor_reads_and_is_neither_above_nor_below_a_deployer() {
        assert!(Role::Auditor.includes(Role::Viewer));
        assert!(!Role::Auditor.includes(Role::Deployer) && !Role::Deployer.includes(Role::Auditor));
        assert!(!Role::Owner.includes(Role::Auditor) && Role::Admin.includes(Role::Auditor));
        assert!(!Role::Auditor.reads_secrets() && !Role::Viewer.reads_secrets());
    }

    #[test]
    fn a_token_cannot_get_a_role_above_its_creators() {
        for giver in Role::iter() {
            for given in Role::iter() {
                let expected = match giver {
                    Role::Admin => true,
                    Role::Owner => !given.is_over_installation(),
                    Role::Viewer | Role::Deployer | Role::Auditor => false,
                };
                assert_eq!(giver.may_give(given), expected, "{giver} gives {given}");
            }
        }
    }
}

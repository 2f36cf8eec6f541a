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

/// What a user or program may do. Viewer, deployer and owner are roles in a project, admin and auditor in the
/// whole installation. The roles have no total order; compare them with [`Role::includes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// Reads its project, without the values of Secrets.
    Viewer,
    /// Also submits, targets, rolls back and deletes its project's stacks, approves prunes, unbars content.
    Deployer,
    /// Also creates tokens, manages webhooks and reads the audit log of its project.
    Owner,
    /// Everything, in every project.
    Admin,
    /// Reads everything of every project and the audit log, without the values of Secrets. Changes nothing.
    Auditor,
}

impl Role {
    /// Returns whether this role has all permissions of the other one.
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

    /// Returns whether the role applies to the whole installation, and so to every project.
    #[must_use]
    pub fn is_over_installation(self) -> bool {
        matches!(self, Self::Admin | Self::Auditor)
    }

    /// Returns whether this role may create tokens with the given role, which cannot exceed its own.
    #[must_use]
    pub fn may_give(self, role: Self) -> bool {
        matches!(self, Self::Owner | Self::Admin) && self.includes(role)
    }

    /// Returns whether it may read the values of Secrets. A role that may replace them may also read them.
    #[must_use]
    pub fn reads_secrets(self) -> bool {
        self.includes(Self::Deployer)
    }
}

/// Requests an API token in the project of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// The purpose of the token. Histories and the audit log show it.
    pub name: Name,
    pub role: Role,
    /// How long it is valid: 90 days by default, 366 days at most.
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
    /// The token that created it; null for the first one.
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// An API token that was just created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewApiToken {
    /// Shown once, stored only as a hash.
    pub token: String,
    #[serde(flatten)]
    pub info: ApiToken,
}

/// Requests a token that replaces another one, with the same name, role and project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateApiToken {
    /// How long the old token stays valid: a day by default, a week at most, and never beyond its own expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_seconds: Option<u32>,
    /// How long the new token is valid: by default as long as the old one was from creation to expiry, 366
    /// days at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// An API token that was just created to replace another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedApiToken {
    /// Shown once, stored only as a hash.
    pub token: String,
    #[serde(flatten)]
    pub info: ApiToken,
    /// The old token, with its new expiry.
    pub replaces: ApiToken,
}

/// Requests a join token for one agent. It can be used once and is bound to name and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    pub agent_name: Name,
    #[serde(default)]
    pub labels: Labels,
    /// How long it is valid: an hour by default, a week at most.
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
    /// The existing agent that gets a new key with this token, if any.
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
    /// The project of the token; for admins and auditors, the project that the request names.
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
        for creator in Role::iter() {
            for given in Role::iter() {
                let expected = match creator {
                    Role::Admin => true,
                    Role::Owner => !given.is_over_installation(),
                    Role::Viewer | Role::Deployer | Role::Auditor => false,
                };
                assert_eq!(creator.may_give(given), expected, "{creator} creates {given}");
            }
        }
    }
}

//! Join tokens, and who one is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::TokenId;
use crate::names::{Labels, Name};

/// What a person or machine may do. Ordered: each includes the ones before it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    Viewer,
    Deployer,
    Owner,
    Admin,
}

/// Asks for a token with which one agent can join: one use, bound to name and labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    pub agent_name: Name,
    #[serde(default)]
    pub labels: Labels,
    /// How long it can be used; an hour if not given.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    pub token_id: TokenId,
    pub name: String,
    pub project: String,
    pub role: Role,
    pub expires_at: Option<Timestamp>,
}

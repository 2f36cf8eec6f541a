//! Projects: who owns stacks, tokens and webhooks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Name;

/// How much a project may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// Living stacks.
    pub stacks: u64,
    /// Deployment objects submitted within one hour of the clock.
    pub submissions_per_hour: u64,
    /// Bytes of stored deployment objects.
    pub stored_bytes: u64,
    /// API tokens that are not revoked.
    pub tokens: u64,
    pub webhooks: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    pub name: Name,
    pub created_at: Timestamp,
    pub allowed: Quotas,
    pub used: Quotas,
}

/// Makes a project, or changes the quotas that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutProject {
    #[serde(default)]
    pub allowed: PutQuotas,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutQuotas {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submissions_per_hour: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<u64>,
}

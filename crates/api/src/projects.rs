//! Projects: owners of stacks, tokens and webhooks, with quotas.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Name;

/// Limits of a project, or their current use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// Stacks that are not deleted.
    pub stacks: u64,
    /// Deployment objects submitted within one clock hour.
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
    /// Whether the project may do only what its grants allow. Always so, except for the project `default` before its
    /// first grant.
    pub restricted: bool,
    pub allowed: Quotas,
    pub used: Quotas,
}

/// Creates a project, or changes what is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutProject {
    #[serde(default)]
    pub allowed: PutQuotas,
    /// `true` restricts the project to its grants; `false` lifts this, only for the project `default` without grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restricted: Option<bool>,
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

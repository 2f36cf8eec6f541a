//! The audit log: who did what, from where, and what came of it; chained per project.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::Checksum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AuditKind {
    /// Something was changed; the entry was made in the same transaction.
    Change,
    /// Somebody tried what they may not. Under a flood of them not every one is kept.
    Refused,
    /// Values of Secrets were read by a person or machine.
    SecretsRead,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    pub project: String,
    pub kind: AuditKind,
    /// `token:ID`, `agent:ID`, `nobody` where a join token was all that came, or `operator` for a command of the broker.
    pub principal: String,
    /// The name of the token.
    pub name: String,
    pub method: String,
    /// The route as in the description of the API: `/api/v1/stacks/{stack}`.
    pub route: String,
    pub path: String,
    /// Where the request came from.
    pub address: String,
    /// The status of the answer.
    pub status: u16,
    pub request_id: String,
    /// Digests of what was there before and after, where there is something to compare.
    pub before: Option<Checksum>,
    pub after: Option<Checksum>,
}

/// The newest link of a project's chain. Keep it elsewhere, and nobody can rewrite what is before it unseen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    pub project: String,
    pub number: i64,
    pub hash: Checksum,
}

/// What a walk along the chain found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerdict {
    pub project: String,
    /// Links that were walked and hold.
    pub links: i64,
    /// The last link that holds, which may be compared with one kept elsewhere.
    pub last: Option<AuditHead>,
    /// The first link that does not hold.
    pub broken: Option<BrokenLink>,
    /// Give this as `after` to walk on; none at the end.
    pub next: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokenLink {
    pub number: i64,
    pub audit_id: Option<i64>,
    pub why: String,
}

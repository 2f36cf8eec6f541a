//! The audit log: who did what, from where, and with what result. Entries are hash-chained per project.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::Checksum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AuditKind {
    /// A change; the entry was written in the same transaction.
    Change,
    /// Refused attempts: one entry per minute, with their number, for each caller, route and reason.
    Refused,
    /// A user or program read values of Secrets.
    SecretsRead,
}

/// Why an attempt was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalReason {
    /// The caller has no permission for the route.
    PermissionDenied,
    /// The credential has expired.
    CredentialExpired,
    /// An agent named a stack that does not target it and is not recorded as held by it.
    NotTargeted,
    /// An agent named a version that was never released to it.
    NotReleased,
    /// An agent sent reports that are malformed, or whose ids do not match their content.
    MalformedReport,
    /// An agent sent more reports than its budget, or its project's, allows.
    OverBudget,
    /// An agent has another content under a sequence id than the broker.
    OtherContent,
    /// The caller claimed to have seen a position that the broker did not issue.
    ForgedPosition,
    /// A request with the cookie of a session did not come from the console: another site may have caused it.
    CrossSite,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    pub project: String,
    pub kind: AuditKind,
    /// `token:ID`, `agent:ID`, `nobody` for a request with only a join token, `operator` for a command of the broker,
    /// or `broker` for what it records by itself, such as the floor of the chain.
    pub principal: String,
    /// The name of the token.
    pub name: String,
    pub method: String,
    /// The route as in the description of the API: `/api/v1/stacks/{stack}`.
    pub route: String,
    pub path: String,
    /// Where the request came from.
    pub address: String,
    /// The HTTP status of the response.
    pub status: u16,
    pub request_id: String,
    /// Why a refused attempt was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalReason>,
    /// How often the caller was refused on this route for this reason since the entry before; 1 for everything else.
    pub count: u64,
    /// The reason that the caller gave for the change, if the route asks for one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digests of the resource before and after the change, if there is something to compare.
    pub before: Option<Checksum>,
    pub after: Option<Checksum>,
}

/// The newest link of a project's chain. A copy kept elsewhere reveals later changes to earlier entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    pub project: String,
    pub number: i64,
    pub hash: Checksum,
}

/// The result of verifying the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerdict {
    pub project: String,
    /// The number of verified links.
    pub links: i64,
    /// The last link whose entry retention has dropped, or is about to drop; recorded in the chain itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<AuditHead>,
    /// The last verified link, to compare with a copy kept elsewhere.
    pub last: Option<AuditHead>,
    /// The first invalid link.
    pub broken: Option<BrokenLink>,
    /// Pass this as `after` to continue; null at the end.
    pub next: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokenLink {
    pub number: i64,
    pub audit_id: Option<i64>,
    pub why: String,
}

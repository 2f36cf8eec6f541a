//! Sessions: what a browser has instead of an API token.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{SessionId, TokenId};
use crate::tokens::Role;

/// How long a session lasts without being used.
pub const IDLE_SESSION_SECONDS: u32 = 3600;
/// How long a session lasts at most.
pub const LONGEST_SESSION_SECONDS: u32 = 12 * 3600;
/// How long after the sign-in a session may change what admins change, and issue credentials.
pub const RECENT_SIGN_IN_SECONDS: u32 = 15 * 60;

/// A session, without its secret, which is only in the cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSession {
    pub id: SessionId,
    /// The token that it was opened with. The session has the role and the project of this token, and ends with it.
    pub token_id: TokenId,
    /// The name of the token.
    pub name: String,
    pub role: Role,
    pub project: String,
    pub created_at: Timestamp,
    /// The last use, up to a minute earlier.
    pub last_used_at: Timestamp,
    /// When it ends unless it is used before: an hour after the last use.
    pub idle_at: Timestamp,
    /// When it ends even if it is used: 12 hours after it was opened, or with its token.
    pub expires_at: Timestamp,
}

/// A session, and what the console needs to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionDetails {
    #[serde(flatten)]
    pub session: ConsoleSession,
    /// The projects that a request may name in `brokkr-project`, by name; at most 500.
    pub projects: Vec<String>,
    /// The version of the broker that answered.
    pub server_version: String,
    /// Set while the broker is on hold.
    pub hold: Option<HoldNotice>,
}

/// The broker is on hold: what it shows may be older than what agents have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldNotice {
    pub since: Timestamp,
    /// The cause as a sentence.
    pub because: String,
}

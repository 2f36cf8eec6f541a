//! Errors of the API: problem documents (RFC 9457) with a stable code.
//!
//! [`ErrorCode`] lists every code. Each code has a page `docs/errors/<code>.md` that explains the error and
//! what to do about it; a test compares the codes with the pages.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoEnumIterator as _};
use utoipa::ToSchema;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, Display, EnumIter, EnumString,
)]
pub enum ErrorCode {
    /// The request carries no valid credential.
    BRK1001,
    /// The credential is valid but does not allow this operation.
    BRK1002,
    /// The join token is unknown, expired, or was used by another key.
    BRK1003,
    /// A newer session of this agent exists.
    BRK1004,
    /// Two processes use the same agent identity.
    BRK1005,
    /// The caller sent more requests than the limit allows.
    BRK1006,
    /// The project has reached one of its quotas.
    BRK1007,
    /// The project still contains resources.
    BRK1008,
    /// Another request has already replaced the agent's key.
    BRK1009,
    /// The agent's assertion is not for this request.
    BRK1010,
    /// The agent did not prove that it has the key.
    BRK1011,
    /// The caller claims to have seen a position that this broker did not issue.
    BRK1012,
    /// A request with the cookie of a session does not come from the console.
    BRK1013,
    /// The change needs a session that was opened a moment ago.
    BRK1014,
    /// The resource does not exist, or the caller is not allowed to see it.
    BRK2001,
    /// The name is already in use.
    BRK2002,
    /// The request cannot be parsed.
    BRK2003,
    /// The manifest has errors; `errors` lists all of them.
    BRK2004,
    /// The idempotency key was already used for a different request.
    BRK2005,
    /// The request body exceeds the size limit.
    BRK2006,
    /// The broker does not support the agent's protocol version.
    BRK2007,
    /// The stack was deleted.
    BRK2008,
    /// A rollback has barred this content on the stack.
    BRK2011,
    /// The resource was modified after the caller read it.
    BRK2012,
    /// The stack has no version to roll back to.
    BRK2013,
    /// The approval is for a version that is not the newest of its stack.
    BRK2014,
    /// The change would indirectly remove stacks from agents, and the request does not confirm how many.
    BRK2009,
    /// The content of the deployment object was removed by retention.
    BRK2019,
    /// Too many streams are open.
    BRK2020,
    /// The stack is not deleted.
    BRK2021,
    /// The agent still has access or stacks.
    BRK2022,
    /// The command is not possible in the state of the rollout.
    BRK2023,
    /// The URL of the webhook is not allowed.
    BRK2016,
    /// The broker has no key to encrypt secrets with.
    BRK2017,
    /// The project has reached its limit of webhooks.
    BRK2018,
    /// The broker does not know which stacks the agent holds, and requests the list.
    BRK3001,
    /// The replica is behind the position that the caller has already seen.
    BRK3002,
    /// The database is not reachable.
    BRK3003,
    /// The broker is on hold: the database was restored and the epoch has not been raised.
    BRK3005,
    /// The requested settlement does not apply to the stack.
    BRK3006,
    /// The stack that the agent announces does not target it.
    BRK3007,
    /// The replica is processing as much as it can.
    BRK3008,
    /// The broker is not on hold, so there is no hold to lift.
    BRK3009,
    /// An unexpected error occurred.
    BRK9001,
}

impl ErrorCode {
    /// Returns the HTTP status of the code.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::BRK1001 | Self::BRK1003 | Self::BRK1010 | Self::BRK1011 => 401,
            Self::BRK1002 | Self::BRK1013 | Self::BRK1014 => 403,
            Self::BRK2001 => 404,
            Self::BRK1006 => 429,
            Self::BRK1007 => 403,
            Self::BRK1008 | Self::BRK1009 | Self::BRK1012 => 409,
            Self::BRK1004 | Self::BRK1005 | Self::BRK2002 | Self::BRK2008 => 409,
            Self::BRK2011 | Self::BRK2013 | Self::BRK2014 => 409,
            Self::BRK2012 => 412,
            Self::BRK3006 | Self::BRK3007 | Self::BRK3009 => 409,
            Self::BRK2009 => 409,
            Self::BRK2019 => 410,
            Self::BRK2020 => 429,
            Self::BRK2021 | Self::BRK2022 | Self::BRK2023 => 409,
            Self::BRK2016 => 422,
            Self::BRK2017 | Self::BRK2018 => 409,
            Self::BRK2006 => 413,
            Self::BRK2003 | Self::BRK2004 | Self::BRK2005 => 422,
            Self::BRK2007 => 426,
            Self::BRK3001 => 428,
            Self::BRK3002 | Self::BRK3003 | Self::BRK3005 | Self::BRK3008 => 503,
            Self::BRK9001 => 500,
        }
    }

    /// Returns the title, which is the same for every occurrence of the code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::BRK1001 => "request is not authenticated",
            Self::BRK1002 => "permission denied",
            Self::BRK1003 => "join token refused",
            Self::BRK1004 => "a newer session of this agent exists",
            Self::BRK1005 => "two processes use the same agent identity",
            Self::BRK1006 => "too many requests",
            Self::BRK1007 => "quota exceeded",
            Self::BRK1008 => "project is not empty",
            Self::BRK1009 => "agent key was already replaced",
            Self::BRK1010 => "assertion is not for this request",
            Self::BRK1011 => "possession of the key is not proven",
            Self::BRK1012 => "position was not issued by this broker",
            Self::BRK1013 => "request does not come from the console",
            Self::BRK1014 => "sign-in is not recent",
            Self::BRK2001 => "not found",
            Self::BRK2002 => "name already in use",
            Self::BRK2003 => "invalid request",
            Self::BRK2004 => "invalid manifest",
            Self::BRK2005 => "idempotency key already used",
            Self::BRK2006 => "request body too large",
            Self::BRK2007 => "protocol version not supported",
            Self::BRK2008 => "stack is deleted",
            Self::BRK2011 => "content barred by a rollback",
            Self::BRK2012 => "resource was modified",
            Self::BRK2013 => "no version to roll back to",
            Self::BRK2014 => "approval is not for the newest version",
            Self::BRK2009 => "change removes stacks from agents",
            Self::BRK2019 => "content is no longer stored",
            Self::BRK2020 => "too many open streams",
            Self::BRK2021 => "stack is not deleted",
            Self::BRK2022 => "agent is still in use",
            Self::BRK2023 => "rollout is in another state",
            Self::BRK2016 => "webhook URL not allowed",
            Self::BRK2017 => "no encryption key configured",
            Self::BRK2018 => "too many webhooks",
            Self::BRK3001 => "agent must send its list of stacks",
            Self::BRK3002 => "replica is behind",
            Self::BRK3003 => "database unavailable",
            Self::BRK3005 => "broker is on hold",
            Self::BRK3006 => "stack cannot be settled this way",
            Self::BRK3007 => "stack does not target this agent",
            Self::BRK3008 => "replica is busy",
            Self::BRK3009 => "broker is not on hold",
            Self::BRK9001 => "internal error",
        }
    }

    /// Returns the next step to suggest when nothing more specific is known.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        match self {
            Self::BRK1001 => "log in with `brokkr login`, or check the token",
            Self::BRK1002 => "ask an admin for a token with a role that allows this",
            Self::BRK1003 => "create a new join token with `brokkr agent join-token`",
            Self::BRK1004 => "stop this process; a newer process of the same agent is active",
            Self::BRK1005 => "find the second process; a cloned cluster needs its own join token",
            Self::BRK1006 => "wait for the time in the Retry-After header, then retry",
            Self::BRK1007 => "delete unused resources, or ask an admin to raise the quota",
            Self::BRK1008 => {
                "revoke its tokens, delete its webhooks and grants; if it ever had a stack, it cannot be deleted"
            }
            Self::BRK1009 => {
                "sign with the most recently registered key, or join again with a new join token"
            }
            Self::BRK1010 => "check whether a proxy between the agent and the broker changes requests",
            Self::BRK1011 => "upgrade the agent; if it is current, check whether a proxy changes requests",
            Self::BRK1012 => {
                "for an agent, find out which broker it was connected to, then run `brokkr-agent forget-position`"
            }
            Self::BRK1013 => {
                "use the console of this broker in a current browser; programs send a token instead of a cookie"
            }
            Self::BRK1014 => "sign in again, and repeat the change within 15 minutes",
            Self::BRK2001 => "check the name and the project",
            Self::BRK2002 => "choose another name",
            Self::BRK2003 => "correct the request",
            Self::BRK2004 => "correct the manifest",
            Self::BRK2005 => "use a new key for each new request",
            Self::BRK2006 => {
                "split it: a submission can be up to 8 MiB, an object up to 1 MiB, other requests less"
            }
            Self::BRK2007 => "upgrade the agent",
            Self::BRK2008 => "apply again under the same name to create a new stack",
            Self::BRK2011 => "submit different content, or unbar this content with `brokkr stack unbar`",
            Self::BRK2012 => "read it again, then decide whether to repeat the request",
            Self::BRK2014 => "check the pending prune of the newest version, and approve that one",
            Self::BRK2013 => "choose a version from the history, or submit corrected content",
            Self::BRK2009 => {
                "check the stacks and agents in the message; to proceed, repeat the request with `--expect NUMBER` (API: `?expect=NUMBER`)"
            }
            Self::BRK2019 => "submit it again from its source; the history still has the checksum",
            Self::BRK2020 => "close a stream, or connect to another replica",
            Self::BRK2021 => "delete the stack first, with `brokkr stack delete`",
            Self::BRK2022 => {
                "retire it with `brokkr agent retire`, or abandon it with `brokkr agent abandon`"
            }
            Self::BRK2023 => "look at the rollout: only a rollout that has not ended takes commands",
            Self::BRK2016 => {
                "use an https URL that is reachable from the internet, or ask the operator to allow this one"
            }
            Self::BRK2017 => "ask the operator to start the broker with BROKKR_SECRET_KEY",
            Self::BRK2018 => {
                "delete a webhook that is no longer needed, or let one receiver forward the messages"
            }
            Self::BRK3001 => "nothing to do: the agent sends the list automatically",
            Self::BRK3002 | Self::BRK3003 | Self::BRK3008 => "retry shortly",
            Self::BRK3005 => {
                "an admin must check `brokkr admin status`, then run `brokkr admin lift-hold` or `brokkr-broker epoch raise`"
            }
            Self::BRK3006 => {
                "see `brokkr admin ahead`, `brokkr admin unknown` and `brokkr admin unconfirmed`"
            }
            Self::BRK3007 => "nothing to do: the agent polls again and gets its current targets",
            Self::BRK3009 => "nothing to do; `brokkr admin status` shows whether the broker is on hold",
            Self::BRK9001 => "retry; if the error persists, search the broker's log for the request id",
        }
    }

    /// Returns whether the same request may succeed later without changes.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::BRK1006 | Self::BRK2020 | Self::BRK3002 | Self::BRK3003 | Self::BRK3008 | Self::BRK9001
        )
    }

    /// Returns every code.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::iter().collect()
    }
}

/// Problem document of RFC 9457 with the extension members of Brokkr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Path of the page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// One sentence about this occurrence of the error.
    pub detail: String,
    pub code: ErrorCode,
    /// What to do next.
    pub next: String,
    #[serde(default)]
    pub request_id: String,
    /// The individual errors, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// For BRK2009: the number of (stack, agent) pairs that would be removed; send it as `expect` to confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

impl Problem {
    /// Creates a problem document with the title, status and next step of the code.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("docs/errors/{code}.md"),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            next: code.next_step().to_owned(),
            request_id: String::new(),
            errors: Vec::new(),
            expect: None,
        }
    }

    /// Sets the individual errors.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<String>) -> Self {
        self.errors = errors;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", self.detail, self.code, self.title)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let mut pages: Vec<String> = std::fs::read_dir(folder)
            .expect("docs/errors exists")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().replace(".md", ""))
            .filter(|name| name != "README")
            .collect();
        pages.sort();
        let mut codes: Vec<String> = ErrorCode::all().iter().map(ToString::to_string).collect();
        codes.sort();
        assert_eq!(pages, codes);
    }
}

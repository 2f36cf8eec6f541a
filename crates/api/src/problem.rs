//! Errors on the wire: problem documents (RFC 9457) with a stable code.
//!
//! One enum holds every code. Each has a page `docs/errors/<code>.md` that says what happened and
//! what to do; a test keeps the two in step.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;
use utoipa::ToSchema;

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::EnumIter,
    strum::Display,
    strum::EnumString,
    strum::AsRefStr,
)]
pub enum ErrorCode {
    /// No valid credential came with the request.
    BRK1001,
    /// The credential is valid, and does not allow this.
    BRK1002,
    /// The join token is unknown, expired or used by another key.
    BRK1003,
    /// A newer session of this agent exists.
    BRK1004,
    /// Two processes claim to be this agent.
    BRK1005,
    /// More requests came than are allowed.
    BRK1006,
    /// The project has as much as it may have.
    BRK1007,
    /// The project still has something in it.
    BRK1008,
    /// The agent's key was changed by another request.
    BRK1009,
    /// There is no such thing, or it is not visible to the caller.
    BRK2001,
    /// The name is taken.
    BRK2002,
    /// The request cannot be read.
    BRK2003,
    /// The manifest has errors; they are listed.
    BRK2004,
    /// The idempotency key was used for another request.
    BRK2005,
    /// The body is larger than allowed.
    BRK2006,
    /// The agent's protocol version is not spoken here.
    BRK2007,
    /// The stack was deleted.
    BRK2008,
    /// The content was barred on the stack by a roll-back.
    BRK2011,
    /// It was changed since the caller read it.
    BRK2012,
    /// There is no version to go back to.
    BRK2013,
    /// The version is not the newest of its stack.
    BRK2014,
    /// The change takes stacks away from agents indirectly, and does not say from how many.
    BRK2009,
    /// The content of the deployment object has had its time.
    BRK2019,
    /// Too many streams are open.
    BRK2020,
    /// The address of a webhook is refused.
    BRK2016,
    /// The broker has no key to keep secrets with.
    BRK2017,
    /// The project has as many webhooks as it may have.
    BRK2018,
    /// The broker does not know what the agent holds and asks for the list.
    BRK3001,
    /// This replica is behind what the agent has already seen.
    BRK3002,
    /// The database cannot be reached.
    BRK3003,
    /// The agent has seen more than this broker's database holds: it was restored.
    BRK3004,
    /// The broker is on hold: its database was restored and the epoch was not raised yet.
    BRK3005,
    /// There is nothing of that kind to settle.
    BRK3006,
    /// Something went wrong that should not have.
    BRK9001,
}

impl ErrorCode {
    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::BRK1001 | Self::BRK1003 => 401,
            Self::BRK1002 => 403,
            Self::BRK2001 => 404,
            Self::BRK1006 => 429,
            Self::BRK1007 => 403,
            Self::BRK1008 | Self::BRK1009 => 409,
            Self::BRK1004 | Self::BRK1005 | Self::BRK2002 | Self::BRK2008 | Self::BRK3004 => 409,
            Self::BRK2011 | Self::BRK2013 | Self::BRK2014 => 409,
            Self::BRK2012 => 412,
            Self::BRK3006 => 409,
            Self::BRK2009 => 409,
            Self::BRK2019 => 410,
            Self::BRK2020 => 429,
            Self::BRK2016 => 422,
            Self::BRK2017 | Self::BRK2018 => 409,
            Self::BRK2006 => 413,
            Self::BRK2003 | Self::BRK2004 | Self::BRK2005 => 422,
            Self::BRK2007 => 426,
            Self::BRK3001 => 428,
            Self::BRK3002 | Self::BRK3003 | Self::BRK3005 => 503,
            Self::BRK9001 => 500,
        }
    }

    /// The same for every occurrence of the code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::BRK1001 => "not authenticated",
            Self::BRK1002 => "not allowed",
            Self::BRK1003 => "join token refused",
            Self::BRK1004 => "a newer session of this agent exists",
            Self::BRK1005 => "two processes claim to be this agent",
            Self::BRK1006 => "too many requests",
            Self::BRK1007 => "quota used up",
            Self::BRK1008 => "project not empty",
            Self::BRK1009 => "key already changed",
            Self::BRK2001 => "not found",
            Self::BRK2002 => "name taken",
            Self::BRK2003 => "request not understood",
            Self::BRK2004 => "manifest refused",
            Self::BRK2005 => "idempotency key used for another request",
            Self::BRK2006 => "too large",
            Self::BRK2007 => "protocol version not supported",
            Self::BRK2008 => "stack deleted",
            Self::BRK2011 => "content barred by a roll-back",
            Self::BRK2012 => "changed meanwhile",
            Self::BRK2013 => "nothing to go back to",
            Self::BRK2014 => "not the newest version",
            Self::BRK2009 => "takes stacks away from agents",
            Self::BRK2019 => "content no longer kept",
            Self::BRK2020 => "too many streams",
            Self::BRK2016 => "webhook address refused",
            Self::BRK2017 => "no key to keep secrets with",
            Self::BRK2018 => "too many webhooks",
            Self::BRK3001 => "list of held stacks wanted",
            Self::BRK3002 => "replica behind",
            Self::BRK3003 => "database unavailable",
            Self::BRK3004 => "agent ahead of the broker",
            Self::BRK3005 => "on hold",
            Self::BRK3006 => "nothing to settle that way",
            Self::BRK9001 => "internal error",
        }
    }

    /// What to do next, when nothing more specific is known.
    #[must_use]
    pub fn next_step(self) -> &'static str {
        match self {
            Self::BRK1001 => "log in with `brokkr login`, or check the token",
            Self::BRK1002 => "ask an admin for a token with a higher role",
            Self::BRK1003 => "make a new one with `brokkr agent join-token`",
            Self::BRK1004 => "stop this process: another one serves",
            Self::BRK1005 => "find the second process; a cloned cluster needs a join token of its own",
            Self::BRK1006 => "wait as long as Retry-After says",
            Self::BRK1007 => "delete what is no longer needed, or ask an admin for more",
            Self::BRK1008 => "delete its stacks, revoke its tokens, and remove its webhooks and grants first",
            Self::BRK1009 => {
                "sign with the key that was registered last, or join again with a new join token"
            }
            Self::BRK2001 => "check the name, and the project",
            Self::BRK2002 => "choose another name",
            Self::BRK2003 => "correct the request",
            Self::BRK2004 => "correct the manifest",
            Self::BRK2005 => "use a new key for a new request",
            Self::BRK2006 => "split it: a submission holds at most 8 MiB, an object 1 MiB",
            Self::BRK2007 => "upgrade the agent",
            Self::BRK2008 => "apply it again under the same name to start a new stack",
            Self::BRK2011 => "submit another content, or lift the bar if it is good after all",
            Self::BRK2012 => "read it again, and decide again",
            Self::BRK2014 => "look at what is waiting now, and approve that",
            Self::BRK2013 => "name the version to go back to; the history lists them",
            Self::BRK2009 => {
                "look at the examples; if it is meant, do it again with `--expect NUMBER` (in the API: `?expect=NUMBER`)"
            }
            Self::BRK2019 => "submit it again from where it came from; the history still has its checksum",
            Self::BRK2020 => "close a stream, or ask another replica",
            Self::BRK2016 => {
                "use an https address that is reachable from the internet, or ask the operator to allow it"
            }
            Self::BRK2017 => "ask the operator to start the broker with BROKKR_SECRET_KEY",
            Self::BRK2018 => "delete one that is no longer needed, or let one receiver pass messages on",
            Self::BRK3001 => "the agent sends it by itself; nothing to do",
            Self::BRK3002 | Self::BRK3003 => "try again shortly",
            Self::BRK3004 => "the database was restored: the epoch has to be raised by an operator",
            Self::BRK3005 => "an operator runs `brokkr-broker epoch raise`; `brokkr admin status` tells more",
            Self::BRK3006 => "see `brokkr admin ahead` and `brokkr admin unknown`",
            Self::BRK9001 => "try again; if it stays, look for the request id in the broker's log",
        }
    }

    /// Whether the same request may succeed later without being changed.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::BRK1006 | Self::BRK2020 | Self::BRK3002 | Self::BRK3003 | Self::BRK9001)
    }

    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::iter().collect()
    }
}

/// RFC 9457, with our members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Path of the code's page.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What happened here, in a sentence.
    pub detail: String,
    pub code: ErrorCode,
    /// What to do next.
    pub next: String,
    #[serde(default)]
    pub request_id: String,
    /// Each error, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// With BRK2009: how many (stack, agent) pairs would go, to be sent as `expect` if that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

impl Problem {
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

//! Versions, capabilities, headers and media types, which all requests share.
//!
//! They are part of the protocol from its first version, because adding them later would require upgrading every agent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strum::IntoEnumIterator as _;

use crate::ids::{Checksum, InstanceId, StackId};

/// The protocol version that this build speaks. Sent by agents in [`header::PROTOCOL`].
pub const PROTOCOL_VERSION: u32 = 1;
/// The oldest version that this build still understands.
pub const OLDEST_PROTOCOL_VERSION: u32 = 1;

/// What a peer can do beyond the minimum of its protocol version. A message that needs a capability is sent
/// only to peers that announced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub enum Capability {
    /// The agent replaces its key when the broker requests it with [`Want::Key`].
    KeyRotation,
    /// The broker stores the details of reasons.
    ReasonDetails,
    /// The agent replaces itself by an image when the broker offers one with [`Want::Upgrade`]. Announced only if the owner of the
    /// cluster allows it.
    Upgrade,
}

/// The set of capabilities in [`header::CAPABILITIES`]. Names that this build does not know are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Capabilities {
    /// Returns all capabilities of this build.
    #[must_use]
    pub fn own() -> Self {
        Capability::iter().collect()
    }

    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u32 != 0
    }

    /// Parses a header value.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.split(',').filter_map(|name| name.trim().parse().ok()).collect()
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<T: IntoIterator<Item = Capability>>(capabilities: T) -> Self {
        Self(capabilities.into_iter().fold(0, |set, capability| set | 1 << capability as u32))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            Capability::iter().filter(|capability| self.has(*capability)).map(|name| name.to_string());
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// How long a replica that is behind the agent's position waits to catch up before it returns 503.
pub const CATCH_UP_SECONDS: u64 = 5;
/// The longest wait that a long poll may request.
pub const LONGEST_WAIT_SECONDS: u64 = 300;
/// The maximum size of one submission.
pub const SUBMISSION_BYTES: usize = 8 * 1024 * 1024;

/// Names of headers, in lower case as HTTP/2 requires.
pub mod header {
    /// Protocol version, a number.
    pub const PROTOCOL: &str = "brokkr-protocol";
    /// Capabilities, separated by commas.
    pub const CAPABILITIES: &str = "brokkr-capabilities";
    /// `epoch.horizon.mac`: see [`crate::position::PositionToken`].
    pub const POSITION: &str = "brokkr-position";
    /// Digest of the set of stacks that the agent holds: see [`super::holds_digest`].
    pub const HOLDS: &str = "brokkr-holds";
    /// `count.instance`: see [`super::Session`].
    pub const SESSION: &str = "brokkr-session";
    /// Seconds over which agents should spread their reconnects.
    pub const SPREAD: &str = "brokkr-reconnect-spread";
    /// The project of the request. Only admins and auditors need it; others have one project.
    pub const PROJECT: &str = "brokkr-project";
    /// Seconds since the broker last reached its database, if the response comes from memory.
    pub const STALE: &str = "brokkr-stale";
    /// What the broker requests from the agent in addition: see [`super::Want`]. Agents that do not know it
    /// ignore it.
    pub const WANTS: &str = "brokkr-wants";
    /// Makes a write repeatable: a repeated request with the same key gets the first result.
    pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
    /// Why a version is submitted, percent-encoded UTF-8: see [`crate::objects::Provenance`].
    pub const MESSAGE: &str = "brokkr-message";
    /// The Git commit that a submitted version comes from.
    pub const COMMIT: &str = "brokkr-commit";
    /// `1`: sent by the console with each request. Another site cannot add a header to a request that a browser sends for it.
    pub const CONSOLE: &str = "brokkr-console";
    /// Identifies one request in logs and problem documents.
    pub const REQUEST_ID: &str = "x-request-id";
}

/// Value of [`header::WANTS`]: what the broker requests from the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Want {
    /// A new key that replaces the agent's current one.
    Key,
    /// That it fetches the upgrade that it is offered: `GET agents/ID/upgrade`.
    Upgrade,
}

/// The media type that agents accept at `target-state`. A request that accepts another type gets the plain
/// array with contents.
pub const ENVELOPE_MEDIA_TYPE: &str = "application/vnd.brokkr.target-state.v1+json";
/// The media type of deployment objects, which are sent as the submitted bytes.
pub const YAML_MEDIA_TYPE: &str = "application/yaml";
/// The media type of problem documents (RFC 9457).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

#[derive(Debug, thiserror::Error)]
#[error("cannot parse the header value {0:?}")]
pub struct BadHeader(String);

/// One run of an agent: a count that is stored in its cluster and increased at each start, and a random id of
/// the process, which distinguishes two processes with the same count (a cloned cluster).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session {
    pub count: i64,
    pub instance: InstanceId,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.count, self.instance)
    }
}

impl FromStr for Session {
    type Err = BadHeader;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadHeader(text.to_owned());
        let (count, instance) = text.split_once('.').ok_or_else(bad)?;
        Ok(Self { count: count.parse().map_err(|_| bad())?, instance: instance.parse().map_err(|_| bad())? })
    }
}

/// Returns the digest of the set of stacks that an agent holds. Order and duplicates do not matter.
#[must_use]
pub fn holds_digest(stacks: impl IntoIterator<Item = StackId>) -> Checksum {
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_unstable();
    stacks.dedup();
    let mut hash = Sha256::new();
    for stack in stacks {
        hash.update(stack.0.as_bytes());
    }
    Checksum(hash.finalize().into())
}

/// Compares two entity tags weakly, because proxies that compress add `W/`.
#[must_use]
pub fn same_etag(left: &str, right: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    bare(left) == bare(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_of_held_stacks_has_no_order() {
        let (one, two) = (StackId::generate(), StackId::generate());
        assert_eq!(holds_digest([one, two]), holds_digest([two, one, two]));
        assert_ne!(holds_digest([one]), holds_digest([one, two]));
    }

    #[test]
    fn unknown_capabilities_of_a_newer_peer_are_ignored() {
        let peer = Capabilities::parse("reason-details, time-travel");
        assert!(peer.has(Capability::ReasonDetails));
        assert!(!peer.has(Capability::KeyRotation));
        assert_eq!(peer.to_string(), "reason-details");
        assert_eq!(Capabilities::parse(&Capabilities::own().to_string()), Capabilities::own());
        assert_eq!(Capabilities::parse(""), Capabilities::default());
    }

    #[test]
    fn tags_are_compared_weakly() {
        assert!(same_etag("\"abc\"", "W/\"abc\""));
        assert!(!same_etag("\"abc\"", "\"abd\""));
    }
}

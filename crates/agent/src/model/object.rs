//! A live object, reduced to what decisions need, and its owner.
//!
//! There may be ten thousand of these, so equal values are shared, and UUIDs are stored as 16 bytes.

use std::fmt;
use std::sync::Arc;

use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_health::{Health, HealthState};
use brokkr_manifest::Key;
use hex::FromHex as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The hash of our managedFields entry. While it is unchanged, no other manager has changed our fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl From<String> for Fingerprint {
    /// Also accepts the entry of an old record, which contains the text instead of its hash.
    fn from(text: String) -> Self {
        <[u8; 16]>::from_hex(&text).map_or_else(|_| Self::of(&text), Self)
    }
}

/// The state of an object on which drift depends: its uid, and the hash of our managedFields entry.
pub type SeenState = (Uid, Option<Fingerprint>);

/// An id that is opaque by contract and a UUID in practice, stored as 16 bytes if it is a UUID, otherwise as
/// text.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        // Only if the UUID is printed again exactly as this text.
        match text.parse::<Uuid>() {
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
                Self(Form::Uuid(uuid.into_bytes()))
            }
            _ => Self(Form::Text(text.into())),
        }
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<AgentId> for Uid {
    fn from(id: AgentId) -> Self {
        Self(Form::Uuid(id.0.into_bytes()))
    }
}

impl From<StackId> for Uid {
    fn from(id: StackId) -> Self {
        Self(Form::Uuid(id.0.into_bytes()))
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.to_string()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Uuid(bytes) => Uuid::from_bytes(*bytes).fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A live object, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenObject {
    pub uid: Uid,
    /// The resourceVersion.
    pub version: u64,
    /// The agent and the stack that its ownership metadata names.
    pub agent: Option<Uid>,
    pub stack: Option<Uid>,
    /// Its ownership metadata names this object; it is not a copy from another one.
    pub names_itself: bool,
    /// Its annotation `brokkr.io/prune: keep` forbids its deletion.
    pub keep: bool,
    /// It has an ownerReference, so its owner controls its deletion.
    pub has_owner: bool,
    pub deleting: bool,
    /// The hash of our managedFields entry; none if we own no fields.
    pub fields: Option<Fingerprint>,
    pub finalizers: Vec<String>,
    pub health: Arc<Health>,
    /// Its health after a grace period ends.
    pub later: Option<Box<(Timestamp, Arc<Health>)>>,
    /// The sequence id that its ownership metadata names.
    pub sequence: Option<SequenceId>,
    /// It is a Job that is complete.
    pub completed: bool,
}

impl SeenObject {
    #[must_use]
    pub fn health_at(&self, now: Timestamp) -> &Health {
        match self.later.as_deref() {
            Some((at, health)) if *at <= now => health,
            _ => &self.health,
        }
    }

    /// Returns whether no decision depends on the difference: only the resourceVersion may differ.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        Self { version: other.version, ..self.clone() } == *other
    }

    /// Returns whether it is ready. A completed Job stays ready while it is being deleted, because that
    /// is normal at the end of its time to live.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.completed || !self.deleting && self.health_at(now).state == HealthState::Ready
    }

    /// Returns whether the object carries the ownership metadata of this stack, not a copy from another object.
    #[must_use]
    pub fn belongs_to(&self, agent: AgentId, stack: StackId, _key: &Key) -> bool {
        self.names_itself && self.agent == Some(agent.into()) && self.stack == Some(stack.into())
    }

    /// Returns the owner, if that is another stack or agent.
    #[must_use]
    pub fn other_owner(&self, agent: AgentId, stack: StackId, _key: &Key) -> Option<Owner> {
        if !self.names_itself {
            return None;
        }
        match (&self.agent, &self.stack) {
            (Some(other), _) if *other != agent.into() => Some(Owner::Agent(other.to_string())),
            (_, Some(other)) if *other != stack.into() => Some(Owner::Stack(other.to_string())),
            _ => None,
        }
    }
}

/// The other owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Agent(String),
    Stack(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(id) => write!(f, "agent {id}"),
            Self::Stack(id) => write!(f, "stack {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_fingerprints_are_serialised_as_they_were_parsed() {
        for text in [
            "0199c5a7-0000-7000-8000-000000000001",
            "0199C5A7-0000-7000-8000-000000000001",
            "0199c5a700007000800000000000000a",
            "uid-1",
            "",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
            assert_eq!(serde_json::to_string(&Uid::from(text)).unwrap(), format!("\"{text}\""));
        }
        assert_ne!(
            Uid::from("0199c5a7-0000-7000-8000-00000000000a"),
            Uid::from("0199C5A7-0000-7000-8000-00000000000A")
        );
        let fingerprint = Fingerprint::of("apps/v1:00ff");
        let written = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&written).unwrap(), fingerprint);
        let in_an_old_record = "\"apps/v1:00ff\"";
        assert_eq!(serde_json::from_str::<Fingerprint>(in_an_old_record).unwrap(), fingerprint);
    }
}

//! Typed ids, so that ids of different kinds of resources cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

/// Parses and prints an id as its inner value.
macro_rules! text_of_inner {
    ($name:ident($inner:ty)) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = <$inner as FromStr>::Err;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Returns a new id. Ids are ordered by time of creation.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
        }

        text_of_inner!($name(Uuid));
    )*};
}

uuid_ids! {
    /// The agent of one cluster.
    AgentId,
    /// A named set of resources that is delivered together.
    StackId,
    /// A grant: what a project may do on some agents.
    GrantId,
    /// An API token or join token (not its secret).
    TokenId,
    /// A session of the console (not its secret).
    SessionId,
    /// One run of an agent process; distinguishes two processes with the same session count.
    InstanceId,
    /// This broker installation; the audience of every agent assertion.
    InstallationId,
    /// One event. Derived by the sender, so that a repeated report is the same event.
    EventId,
    /// One webhook: a receiver of the events of a project.
    WebhookId,
    /// One message to one webhook: its `webhook-id`, which is the same for every attempt.
    DeliveryId,
    /// A maintenance window, or a freeze.
    WindowId,
    /// A suspension of a stack.
    SuspensionId,
}

impl EventId {
    /// Derives the id of a transition: the same inputs always give the same id.
    #[must_use]
    pub fn derive(
        agent: AgentId,
        stack: StackId,
        sequence: SequenceId,
        transition: &str,
        at: jiff::Timestamp,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(agent.0.as_bytes());
        hash.update(stack.0.as_bytes());
        hash.update(sequence.0.to_be_bytes());
        hash.update(transition.as_bytes());
        hash.update(at.as_microsecond().to_be_bytes());
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// The version number of a deployment object, unique in the installation. It only grows and is never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
pub struct SequenceId(pub i64);

text_of_inner!(SequenceId(i64));

/// The number of an upgrade of agents, from the same sequence as the versions of stacks: a later upgrade has a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct UpgradeId(pub i64);

text_of_inner!(UpgradeId(i64));

/// SHA-256, written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Checksum(pub [u8; 32]);

impl Checksum {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a checksum is 64 hex digits")]
pub struct BadChecksum;

impl FromStr for Checksum {
    type Err = BadChecksum;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| BadChecksum)?;
        Ok(Self(bytes))
    }
}

impl Serialize for Checksum {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Checksum {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}
impl ToSchema for Checksum {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_report_has_the_same_id_and_a_different_report_has_another() {
        let (agent, stack) = (AgentId::generate(), StackId::generate());
        let at = jiff::Timestamp::from_microsecond(1_700_000_000_000_001).unwrap();
        let later = jiff::Timestamp::from_microsecond(1_700_000_000_000_002).unwrap();
        let id = EventId::derive(agent, stack, SequenceId(7), "applied", at);
        assert_eq!(id, EventId::derive(agent, stack, SequenceId(7), "applied", at));
        assert_ne!(id, EventId::derive(agent, stack, SequenceId(8), "applied", at));
        assert_ne!(id, EventId::derive(agent, stack, SequenceId(7), "healthy", at));
        assert_ne!(id, EventId::derive(agent, stack, SequenceId(7), "applied", later));
    }

    #[test]
    fn a_checksum_can_be_printed_and_parsed() {
        let checksum = Checksum::of(b"kind: ConfigMap");
        assert_eq!(checksum.to_string().parse::<Checksum>().unwrap(), checksum);
        assert!("xyz".parse::<Checksum>().is_err());
    }
}

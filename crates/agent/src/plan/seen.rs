//! A live object, as far as decisions need it, and whose it is.

use std::fmt;

use brokkr_api::{AgentId, StackId};
use brokkr_manifest::Key;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::health::{Health, HealthState};

/// The hash of our managedFields entry: while it stays, nobody changed a field of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub String);

/// A live object, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub uid: String,
    pub version: u64,
    pub agent: Option<String>,
    pub stack: Option<String>,
    pub id: Option<String>,
    pub checksum: Option<String>,
    pub keep: bool,
    pub has_owner: bool,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub fields: Option<Fingerprint>,
    pub health: Health,
    /// What time alone will make of it: a grace that ends.
    pub later: Option<(Timestamp, Health)>,
}

impl Seen {
    #[must_use]
    pub fn health_at(&self, now: Timestamp) -> &Health {
        match &self.later {
            Some((at, health)) if *at <= now => health,
            _ => &self.health,
        }
    }

    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> bool {
        !self.deleting && self.health_at(now).state == HealthState::Ready
    }

    /// Carries our marks, and they are about this very object (not copied from another).
    #[must_use]
    pub fn belongs_to(&self, agent: AgentId, stack: StackId, key: &Key) -> bool {
        self.agent.as_deref() == Some(&agent.to_string())
            && self.stack.as_deref() == Some(&stack.to_string())
            && self.id.as_deref() == Some(&key.to_string())
    }

    /// Whose it is, if it is some other stack's or agent's.
    #[must_use]
    pub fn other_owner(&self, agent: AgentId, stack: StackId, key: &Key) -> Option<Owner> {
        if self.id.as_deref() != Some(&key.to_string()) {
            return None;
        }
        match (&self.agent, &self.stack) {
            (Some(other), _) if *other != agent.to_string() => Some(Owner::Agent(other.clone())),
            (_, Some(other)) if *other != stack.to_string() => Some(Owner::Stack(other.clone())),
            _ => None,
        }
    }
}

/// Whose a resource is, if not ours.
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

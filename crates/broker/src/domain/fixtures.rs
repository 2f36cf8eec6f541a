//! Facts for the tests of this folder.

use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::{AgentId, SequenceId};
use jiff::Timestamp;

use super::facts::{AgentFacts, ObjectFacts, SessionFacts};
use super::labels::LabelSet;

/// An agent without labels that holds nothing.
pub fn agent() -> AgentFacts {
    AgentFacts {
        id: AgentId::generate(),
        name: "shop-1".into(),
        status: AgentStatus::Active,
        labels: LabelSet::default(),
        labels_changed_at: Timestamp::UNIX_EPOCH,
        public_key: [0; 32],
        session: SessionFacts::default(),
        new_key_wanted: false,
        upgrade: None,
        holds: Vec::new(),
        holds_digest: Checksum::of(b""),
        unconfirmed: Box::default(),
    }
}

/// A version with one resource.
pub fn object(sequence: i64) -> ObjectFacts {
    ObjectFacts {
        sequence_id: SequenceId(sequence),
        checksum: Checksum::of(&sequence.to_be_bytes()),
        parsed_digest: Checksum::of(b"{}"),
        is_deletion_marker: false,
        keeps_resources: false,
        is_urgent: false,
        wave_wait_seconds: None,
        resources: 1,
        published_at: Timestamp::UNIX_EPOCH,
    }
}

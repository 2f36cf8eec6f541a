//! Values for tests.

use brokkr_api::reason::{Message, Reason};
use brokkr_health::{Health, HealthState};

use super::SeenObject;

/// Returns a ready object without an owner.
pub fn seen(uid: &str, version: u64) -> SeenObject {
    SeenObject {
        uid: uid.into(),
        version,
        agent: None,
        stack: None,
        names_itself: true,
        keep: false,
        has_owner: false,
        deleting: false,
        finalizers: Vec::new(),
        fields: None,
        health: Health { state: HealthState::Ready, reason: Reason::None, message: Message::default() }
            .into(),
        later: None,
        sequence: None,
        completed: false,
    }
}

//! The versions of a kind that are served. A definition always serves `v1`, and `v1beta1` until it drops that.
//!
//! A request on a path that is not served gets a 404 that does not name the object. It proves nothing: the object may live
//! on in another version.

use brokkr_agent::model::{FailureClass, Step, StepResult};
use brokkr_agent::resource::Kind;
use brokkr_api::reason::Reason;
use brokkr_manifest::order;

use super::Server;
use super::request::refusal;
use crate::objects::{BETA, defines};

impl Server {
    /// Returns whether requests on the path of this kind are answered.
    #[must_use]
    pub fn serves(&self, kind: &Kind) -> bool {
        let name = kind.name();
        let mut definitions = self.objects.iter().filter(|(key, _)| defines(key, &name));
        let has_version = kind.version != BETA
            || order::is_built_in(&kind.group)
            || definitions.any(|(_, definition)| definition.serves_beta);
        has_version && self.is_served(&name)
    }

    /// Returns the answer of the agent's `execute` module to a 404 for the whole path. None if the request is carried out:
    /// the path is served, or the agent finds another version, and repeats the request there.
    #[must_use]
    pub fn path_not_found(&self, step: &Step) -> Option<StepResult> {
        let (Step::ReadObject { kind, .. }
        | Step::Delete { kind, .. }
        | Step::Release { kind, .. }
        | Step::Reclaim { kind, .. }) = step
        else {
            return None;
        };
        let name = kind.name();
        if self.is_served(&name) {
            return None;
        }
        Some(if self.objects.keys().any(|key| defines(key, &name)) {
            let reason = Reason::UnknownKind { kind: kind.to_string() };
            StepResult::Failed(refusal(FailureClass::Transient, reason))
        } else if matches!(step, Step::ReadObject { .. }) {
            StepResult::ObjectRead(None)
        } else {
            StepResult::Gone
        })
    }
}

//! The requests that failed, as the server knows them: what really happened, not how the agent classifies it.

use std::collections::BTreeMap;

use brokkr_agent::model::{FailureClass, Step, StepResult};
use brokkr_agent::plan::timing::{MISSING_PATIENCE, TRANSIENT_PATIENCE};
use brokkr_agent::resource::object_ref;
use brokkr_api::report::ObjectNote;
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use crate::run::Request;

/// What kind of failure a request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It fails again until the manifest or the cluster changes.
    Final,
    /// It would succeed later without any change.
    Transient,
    /// Its namespace or its kind does not exist yet.
    Missing,
}

/// Requests about one object that fail.
#[derive(Clone, Debug)]
struct Failing {
    sequence: SequenceId,
    since: Timestamp,
    nature: Nature,
    step: &'static str,
    answer: String,
}

#[derive(Clone, Debug, Default)]
pub struct Failures(BTreeMap<(StackId, Key), Failing>);

impl Failures {
    /// Notes the answer that the agent gets. `is_injected`: the server would have carried the request out.
    pub fn note(&mut self, request: &Request, answer: &StepResult, is_injected: bool, now: Timestamp) {
        let Some(key) = request.step.key() else { return };
        let place = (request.stack, key.clone());
        let StepResult::Failed(failure) = answer else {
            let ends = |failing: &Failing| {
                // A definition may be repaired while its kind is still not served.
                let is_applied = matches!(request.step, Step::Apply { .. }) && failing.step != "resolve";
                failing.step == request.step.name() || is_applied
            };
            if self.0.get(&place).is_some_and(ends) {
                self.0.remove(&place);
            }
            return;
        };
        let nature = match failure.class {
            _ if is_injected => Nature::Transient,
            FailureClass::Transient | FailureClass::Conflict => Nature::Transient,
            FailureClass::Missing => Nature::Missing,
            FailureClass::Permanent | FailureClass::Immutable => Nature::Final,
        };
        let sequence = request.target.sequence_id;
        let earlier = self.0.get(&place).filter(|earlier| {
            earlier.sequence == sequence && (earlier.nature == nature || nature == Nature::Transient)
        });
        let since = earlier.map_or(now, |earlier| earlier.since);
        let answer = failure.reason.code().to_owned();
        self.0.insert(place, Failing { sequence, since, nature, step: request.step.name(), answer });
    }

    /// Returns whether the agent may go on without this object: it failed for good, or for longer than the time for
    /// which transient failures are retried before they are reported.
    #[must_use]
    pub fn has_given_up(&self, stack: StackId, sequence: SequenceId, key: &Key, now: Timestamp) -> bool {
        let failing = self.0.get(&(stack, key.clone())).filter(|failing| failing.sequence == sequence);
        failing.is_some_and(|failing| now.duration_since(failing.since) >= patience(failing.nature))
    }

    /// Returns the failure that a report names, if it is transient and younger than the time for which such failures are retried
    /// without a report.
    #[must_use]
    pub fn young(&self, stack: StackId, note: &ObjectNote, now: Timestamp) -> Option<String> {
        let mut failing = self.0.iter().filter(|((of, _), _)| *of == stack);
        let (_, failing) = failing.find(|((_, key), _)| object_ref(key) == note.object)?;
        if failing.answer != note.reason.code() {
            return None;
        }
        let lasted = now.duration_since(failing.since);
        (failing.nature == Nature::Transient && lasted < TRANSIENT_PATIENCE)
            .then(|| format!("{} → {} for {} s", failing.step, failing.answer, lasted.as_secs()))
    }
}

fn patience(nature: Nature) -> SignedDuration {
    match nature {
        Nature::Final => SignedDuration::ZERO,
        Nature::Transient => TRANSIENT_PATIENCE,
        Nature::Missing => MISSING_PATIENCE,
    }
}

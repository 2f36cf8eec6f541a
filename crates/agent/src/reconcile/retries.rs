//! Failures in a row of the steps of a stack that are not about one object: above all, of writing its record.

use brokkr_api::reason::Reason;
use jiff::Timestamp;

use crate::model::{Failure, Step};
use crate::plan::timing::backoff;

/// The number of failed attempts to write the record before that is reported: after about 15 seconds.
const REPORTED_AFTER: u32 = 4;

#[derive(Clone, Debug, Default)]
pub struct Retries {
    attempts: u32,
    /// When to try again; none if the last step succeeded.
    until: Option<Timestamp>,
    /// Why the record cannot be written, and the number of failed attempts in a row.
    unwritten: Option<(u32, Failure)>,
    /// When it was reported that the record cannot be written; none once the record is written again.
    reported_at: Option<Timestamp>,
}

impl Retries {
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.until.is_some()
    }

    /// Returns when to try again, if that time has not come yet.
    #[must_use]
    pub fn pause(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now)
    }

    /// Tries again at once.
    pub fn retry_now(&mut self) {
        (self.attempts, self.until) = (0, None);
    }

    pub fn fail(&mut self, step: &Step, failure: &Failure, now: Timestamp) {
        self.attempts += 1;
        self.until = Some(now + backoff(self.attempts, failure.retry_after));
        // This process may not write, so it has nothing to say about the stack.
        let may_write = !matches!(failure.reason, Reason::Superseded | Reason::WritesSuspended);
        if matches!(step, Step::WriteRecord(_)) && may_write {
            let attempts = self.unwritten.as_ref().map_or(0, |(attempts, _)| *attempts);
            self.unwritten = Some((attempts + 1, failure.clone()));
        }
    }

    /// Notes that a step succeeded. Returns when it was reported that the record cannot be written, if this step has written
    /// it: then the state of the stack has to be reported again.
    pub fn succeed(&mut self, step: &Step) -> Option<Timestamp> {
        self.retry_now();
        if !matches!(step, Step::WriteRecord(_)) {
            return None;
        }
        self.unwritten = None;
        self.reported_at.take()
    }

    /// Returns why the record cannot be written, if that has lasted for too long and was not reported yet.
    pub fn take_report(&mut self, now: Timestamp) -> Option<Failure> {
        let (attempts, failure) = self.unwritten.clone()?;
        if self.reported_at.is_some() || attempts < REPORTED_AFTER {
            return None;
        }
        self.reported_at = Some(now);
        Some(failure)
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::envelope::TargetStack;
    use brokkr_api::ids::Checksum;
    use brokkr_api::stacks::DriftPolicy;
    use brokkr_api::{SequenceId, StackId};

    use super::*;
    use crate::model::{FailureClass, Record};

    fn write_record() -> Step {
        let at = Timestamp::UNIX_EPOCH;
        let target = TargetStack {
            project: "default".into(),
            stack_id: StackId::generate(),
            stack_name: "web".into(),
            sequence_id: SequenceId(1),
            checksum: Checksum::of(b""),
            parsed_digest: Checksum::of(b""),
            removal: None,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            grant: None,
            approvals: Vec::new(),
            published_at: at,
            targeted_at: at,
            released_at: at,
        };
        Step::WriteRecord(Box::new(Record::new(&target, 1)))
    }

    #[test]
    fn j4_a_record_that_cannot_be_written_is_reported_once_until_it_is_written_again() {
        let step = write_record();
        let refused = Failure::with_words(FailureClass::Transient, Reason::RecordNotWritten, "507");
        let mut now = Timestamp::UNIX_EPOCH;
        let mut retries = Retries::default();
        let mut reports = Vec::new();
        for attempt in 1..10 {
            assert_eq!(retries.pause(now), None);
            retries.fail(&step, &refused, now);
            if let Some(failure) = retries.take_report(now) {
                reports.push((attempt, failure.reason));
            }
            now = retries.pause(now).unwrap();
        }
        assert_eq!(reports, [(REPORTED_AFTER, Reason::RecordNotWritten)]);
        assert_eq!(retries.succeed(&Step::Hold), None, "says nothing about the record");
        assert!(retries.succeed(&step).is_some(), "the state has to be reported again");
        assert_eq!(retries.succeed(&step), None);
        assert!(!retries.is_failing());
    }

    #[test]
    fn a_superseded_process_reports_nothing() {
        let step = write_record();
        let superseded = Failure::new(FailureClass::Permanent, Reason::Superseded);
        let mut retries = Retries::default();
        for _ in 0..10 {
            retries.fail(&step, &superseded, Timestamp::UNIX_EPOCH);
            assert_eq!(retries.take_report(Timestamp::UNIX_EPOCH), None);
        }
    }
}

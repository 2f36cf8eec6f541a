//! Requests on their way: each reaches its server, with a fault if one is due.

use brokkr_agent::model::{Step, StepResult};

use super::{Checked, World};
use crate::run::Request;
use crate::server::Trouble;

/// A fault that happens once, at the n-th request of a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The agent dies after the request was carried out, before the answer arrives.
    Crash(usize),
    /// The request is carried out, and the answer is lost.
    LostAnswer(usize),
    /// The request is not carried out, because the server is overloaded.
    Overload(usize),
    /// The request is not carried out, and the server answers with this status.
    Status(usize, Trouble),
    /// The agent dies while the request is under way. A write of an object is carried out later, during the next run.
    Outlived(usize),
    /// The same for the write of a record: it lands after the next run has read the record.
    LateRecord(usize),
}

impl Fault {
    /// Returns the number of the request at which it happens.
    #[must_use]
    pub fn at(self) -> usize {
        match self {
            Self::Crash(at)
            | Self::LostAnswer(at)
            | Self::Overload(at)
            | Self::Status(at, _)
            | Self::Outlived(at)
            | Self::LateRecord(at) => at,
        }
    }
}

impl World {
    /// Sends a request to its server, with a fault if one is due.
    pub(super) fn send(&mut self, request: Request) -> Checked {
        let number = self.made;
        self.made += 1;
        let fault = self.next_fault(number);
        let is_late = match fault {
            Some(Fault::Outlived(_)) => Some(is_object_write(&request.step)),
            Some(Fault::LateRecord(_)) => Some(matches!(request.step, Step::WriteRecord(_))),
            _ => None,
        };
        if let Some(is_late) = is_late {
            self.note(|| trace_line(&number.to_string(), &request, "under way"));
            self.late.extend(Some(request).filter(|_| is_late));
            self.crash();
            return Ok(());
        }
        let answer = self.answer(&request, fault)?;
        self.note(|| trace_line(&number.to_string(), &request, &brief(&answer)));
        if matches!(fault, Some(Fault::Crash(_))) {
            self.crash();
        } else {
            self.run.answers.push_back((request.stack, request.step, answer));
        }
        Ok(())
    }

    fn next_fault(&mut self, number: usize) -> Option<Fault> {
        if self.fault.is_some_and(|fault| fault.at() == number) {
            return self.fault.take();
        }
        if self.chaos == 0 || !self.rng.percent(self.chaos) {
            return None;
        }
        let kinds = if self.invariants.strict { 8 } else { 5 };
        Some(match self.rng.below(kinds) {
            0 => Fault::Crash(number),
            1 | 2 => Fault::LostAnswer(number),
            3 | 4 => Fault::Overload(number),
            5 => Fault::Outlived(number),
            _ => Fault::Status(number, *self.rng.pick(&Trouble::ALL)),
        })
    }

    /// Carries out a request of an earlier run. No process waits for its answer, and only the preconditions in it, and the
    /// fence, prevent harm.
    pub(super) fn carry_out_late(&mut self, request: &Request) {
        let answer = match &request.step {
            Step::WriteRecord(record) => {
                let is_written = self.records.write_late(record);
                if is_written { "written" } else { "stale" }.to_owned()
            }
            _ => brief(&self.carry_out(request)),
        };
        self.note(|| trace_line("late", request, &answer));
        self.changed();
        self.after_change();
    }
}

fn is_object_write(step: &Step) -> bool {
    matches!(step, Step::Apply { .. } | Step::Delete { .. } | Step::Release { .. } | Step::Reclaim { .. })
}

fn trace_line(number: &str, request: &Request, answer: &str) -> String {
    let key = request.step.key().map(ToString::to_string).unwrap_or_default();
    format!("{number} {} {} {key} → {answer}", request.stack, request.step.name())
}

fn brief(answer: &StepResult) -> String {
    match answer {
        StepResult::ObjectRead(seen) => {
            format!("{:?}", seen.as_ref().map(|seen| (&seen.uid, &seen.stack, seen.deleting)))
        }
        StepResult::Applied { seen, created } => {
            format!("{} {}", if *created { "created" } else { "updated" }, seen.uid)
        }
        StepResult::Contained(foreign) => format!("inside {foreign:?}"),
        StepResult::Failed(failure) => format!("{:?} {}", failure.class, failure.reason.code()),
        _ => "done".to_owned(),
    }
}

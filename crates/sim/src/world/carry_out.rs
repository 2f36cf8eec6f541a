//! Carries out the steps of the plan, like the agent's `reconcile/worker.rs`.

use std::sync::Arc;

use brokkr_agent::model::{Content, Failure, FailureClass, Record, Step, StepResult};
use brokkr_agent::resource::KindName;
use brokkr_api::StackId;
use brokkr_api::reason::Reason;
use brokkr_manifest::order;
use jiff::SignedDuration;

use super::{Fault, World};
use crate::objects::BETA;
use crate::run::Request;
use crate::server::{no_answer, overload, refusal};

impl World {
    /// Returns the answer that the agent gets.
    pub(super) fn answer(&mut self, request: &Request, fault: Option<Fault>) -> Result<StepResult, String> {
        let refused = match fault {
            Some(Fault::Overload(_)) => Some(StepResult::Failed(overload())),
            Some(Fault::Status(_, trouble)) => Some(trouble.answer(&request.step)),
            _ => None,
        };
        if let Some(answer) = refused {
            self.invariants.on_answer(request, &answer, true, self.server.now);
            return Ok(answer);
        }
        self.invariants.before(self, request)?;
        let answer = self.carry_out(request);
        let (mut invariants, request) = (std::mem::take(&mut self.invariants), request);
        let kept = invariants.after(self, request, &answer);
        self.invariants = invariants;
        kept?;
        self.after_change();
        if writes(&request.step) && !matches!(answer, StepResult::Failed(_)) {
            self.writes += 1;
        }
        let is_lost = matches!(fault, Some(Fault::LostAnswer(_)));
        let answer = if is_lost { StepResult::Failed(no_answer()) } else { answer };
        self.invariants.on_answer(request, &answer, is_lost, self.server.now);
        Ok(answer)
    }

    pub(super) fn carry_out(&mut self, request: &Request) -> StepResult {
        if let Some(answer) = self.server.path_not_found(&request.step) {
            return answer;
        }
        match &request.step {
            Step::Hold => self.hold(request),
            Step::Fetch => match self.fetch(request) {
                Ok(content) => StepResult::Fetched(content),
                Err(failure) => StepResult::Failed(failure),
            },
            Step::FetchEarlier { sequence } => {
                let kept = self.kept.contains(&(request.stack, *sequence));
                StepResult::FetchedEarlier(self.broker.content(*sequence).filter(|_| kept).cloned())
            }
            Step::WriteRecord(record) => self.write_record(record),
            Step::ForgetContents { keep } => {
                self.kept.retain(|(stack, sequence)| *stack != request.stack || sequence == keep);
                StepResult::ContentsForgotten
            }
            Step::DropRecord => {
                self.kept.retain(|(stack, _)| *stack != request.stack);
                self.records.drop_record(request.stack);
                self.changed();
                StepResult::RecordDropped
            }
            Step::ReadObject { key, .. } => self.server.read_object(key),
            Step::CheckRights { content } => StepResult::RightsChecked(self.server.lacking(content)),
            Step::Resolve { kinds, .. } if kinds.iter().all(|kind| self.server.serves(kind)) => {
                StepResult::Resolved
            }
            Step::Resolve { .. } => StepResult::Failed(refusal(
                FailureClass::Transient,
                Reason::NotServed { kind: String::new() },
            )),
            Step::ListContained { key, .. } => self.server.list_contained(key),
            Step::DryRun { desired, uid, stamp } => self.server.dry_run(desired, uid.as_ref(), stamp),
            Step::Apply { desired, uid, stamp, .. } => self.server.apply(desired, uid.as_ref(), stamp),
            // Only messages for users depend on these.
            Step::FindRivals { .. } => StepResult::RivalsFound(Vec::new()),
            Step::ReadEdits { desired, .. } | Step::ReadDrift { desired, .. }
                if !self.server.objects.contains_key(&desired.key) =>
            {
                StepResult::Gone
            }
            Step::ReadEdits { .. } | Step::ReadDrift { .. } => StepResult::EditsRead(None),
            Step::Diagnose { .. } => StepResult::Diagnosed(None),
            Step::Delete { key, uid, .. } => self.server.delete(key, uid),
            Step::Release { key, uid, .. } => self.server.release(key, uid),
            // A newer run has written the sequence id: it is not forged.
            Step::Reclaim { .. } if self.is_newer_session(request.stack) => {
                StepResult::Failed(refusal(FailureClass::Permanent, Reason::Superseded))
            }
            Step::Reclaim { key, uid, .. } => match self.server.release(key, uid) {
                StepResult::Released => StepResult::Reclaimed,
                other => other,
            },
        }
    }

    fn hold(&mut self, request: &Request) -> StepResult {
        if self.broker.away {
            return StepResult::Failed(refusal(FailureClass::Transient, Reason::BrokerUnreachable));
        }
        // If the stack was deleted or untargeted meanwhile, the next answer must contain its removal.
        let is_removal =
            self.broker.held.insert(request.stack) && self.broker.desired(request.stack).is_none();
        self.broker.changed |= is_removal;
        self.run.held.insert(request.stack);
        StepResult::Held
    }

    fn fetch(&mut self, request: &Request) -> Result<Arc<Content>, Failure> {
        let name = (request.stack, request.target.sequence_id);
        let available = self.kept.contains(&name) || !self.broker.away && !self.broker.withholds;
        let content = self.broker.content(request.target.sequence_id).filter(|_| available);
        let content = content.ok_or_else(|| refusal(FailureClass::Transient, Reason::FetchFailed))?;
        for (key, desired) in &content.objects {
            let kind = KindName::of(key);
            let known = order::is_built_in(&kind.group)
                || content.definitions.contains_key(&kind)
                || (self.is_cached(&kind) || self.server.is_served(&kind))
                    && (desired.kind.version != BETA || self.server.serves(&desired.kind));
            if !known {
                return Err(refusal(FailureClass::Missing, Reason::UnknownKind { kind: String::new() }));
            }
            if self.server.is_served(&kind) {
                self.run.known.insert(kind, self.server.now);
            }
        }
        self.kept.insert(name);
        Ok(content.clone())
    }

    /// Returns whether the agent remembers the kind, as in its `execute/discovery.rs`.
    fn is_cached(&self, kind: &KindName) -> bool {
        let found = self.run.known.get(kind);
        found.is_some_and(|found| self.server.now.duration_since(*found) < SignedDuration::from_secs(60))
    }

    /// Returns whether a newer run has written the record.
    fn is_newer_session(&self, stack: StackId) -> bool {
        self.records.get(stack).is_some_and(|found| found.session > self.run.session)
    }

    /// Writes a record. A superseded run fails; the current run retries with the stored version, or adopts it.
    fn write_record(&mut self, record: &Record) -> StepResult {
        if self.records.refuse(record.stack) {
            return StepResult::Failed(refusal(FailureClass::Transient, Reason::RecordNotWritten));
        }
        let mut record = record.clone();
        for _ in 0..3 {
            if let Ok(version) = self.records.write(&record) {
                self.changed();
                return StepResult::RecordWritten { version };
            }
            let found = self.records.get(record.stack).cloned();
            if self.is_newer_session(record.stack) {
                return StepResult::Failed(refusal(FailureClass::Permanent, Reason::Superseded));
            }
            if let Some(found) = found.as_ref().filter(|found| record.is_behind(found)) {
                self.records.read(record.stack);
                return StepResult::RecordFound(Box::new(found.clone()));
            }
            record.version = found.and_then(|found| found.version);
        }
        StepResult::Failed(refusal(FailureClass::Transient, Reason::RecordNotWritten))
    }
}

/// Returns whether a step changes anything in the cluster.
fn writes(step: &Step) -> bool {
    matches!(
        step,
        Step::WriteRecord(_)
            | Step::DropRecord
            | Step::Apply { .. }
            | Step::Delete { .. }
            | Step::Release { .. }
            | Step::Reclaim { .. }
    )
}

//! Every step of the plan, carried out. The counterpart of the agent's `reconcile/worker.rs`.

use std::sync::Arc;

use brokkr_agent::plan::steps::{Answer, Step};
use brokkr_agent::plan::types::{Content, Failure, FailureClass, Record};
use brokkr_agent::resource::KindName;
use brokkr_manifest::order;

use super::{Fault, World};
use crate::run::Request;
use crate::server::{no_answer, overload, refusal};

impl World {
    /// The answer that the agent gets.
    pub(super) fn answer(&mut self, request: &Request, fault: Option<Fault>) -> Result<Answer, String> {
        if matches!(fault, Some(Fault::Overload(_))) {
            return Ok(Answer::Failed(overload()));
        }
        self.oath.before(self, request)?;
        let answer = self.carry_out(request);
        let (mut oath, request) = (std::mem::take(&mut self.oath), request);
        let kept = oath.after(self, request, &answer);
        self.oath = oath;
        kept?;
        self.after_change();
        if writes(&request.step) && !matches!(answer, Answer::Failed(_)) {
            self.writes += 1;
        }
        Ok(if matches!(fault, Some(Fault::LostAnswer(_))) { Answer::Failed(no_answer()) } else { answer })
    }

    fn carry_out(&mut self, request: &Request) -> Answer {
        match &request.step {
            Step::Hold => self.hold(request),
            Step::Fetch => match self.fetch(request) {
                Ok(content) => Answer::Fetched(content),
                Err(failure) => Answer::Failed(failure),
            },
            Step::FetchEarlier { sequence } => {
                let kept = self.kept.contains(&(request.stack, *sequence));
                Answer::FetchedEarlier(self.broker.content(*sequence).filter(|_| kept).cloned())
            }
            Step::WriteRecord(record) => self.write_record(record),
            Step::ForgetContents { keep } => {
                self.kept.retain(|(stack, sequence)| *stack != request.stack || sequence == keep);
                Answer::ContentsForgotten
            }
            Step::DropRecord => {
                self.kept.retain(|(stack, _)| *stack != request.stack);
                self.records.drop_record(request.stack);
                self.changed();
                Answer::RecordDropped
            }
            Step::Look { key, .. } => self.server.look(key),
            Step::CheckRights { content } => Answer::RightsChecked(self.server.lacking(content)),
            Step::Resolve { kinds, .. } if kinds.iter().all(|kind| self.server.is_served(&kind.name())) => {
                Answer::Resolved
            }
            Step::Resolve { .. } => Answer::Failed(refusal(FailureClass::Transient, "NotServed")),
            Step::LookInside { key, .. } => self.server.look_inside(key),
            Step::DryRun { wanted, uid, stamp } => self.server.dry_run(wanted, uid.as_ref(), stamp),
            Step::Apply { wanted, uid, stamp, .. } => self.server.apply(wanted, uid.as_ref(), stamp),
            // Only what people read depends on these.
            Step::Contend { .. } => Answer::Contended(Vec::new()),
            Step::Diagnose { .. } => Answer::Diagnosed(None),
            Step::Delete { key, uid, .. } => self.server.delete(key, uid),
            Step::Release { key, uid, .. } => self.server.release(key, uid),
        }
    }

    fn hold(&mut self, request: &Request) -> Answer {
        if self.broker.away {
            return Answer::Failed(refusal(FailureClass::Transient, "BrokerUnreachable"));
        }
        // What was deleted or untargeted meanwhile is to be removed from now on: whoever waits is answered.
        let is_news = self.broker.held.insert(request.stack) && self.broker.wanted(request.stack).is_none();
        self.broker.changed |= is_news;
        self.run.held.insert(request.stack);
        Answer::Held
    }

    fn fetch(&mut self, request: &Request) -> Result<Arc<Content>, Failure> {
        let name = (request.stack, request.target.sequence_id);
        let within_reach = self.kept.contains(&name) || !self.broker.away && !self.broker.withholds;
        let content = self.broker.content(request.target.sequence_id).filter(|_| within_reach);
        let content = content.ok_or_else(|| refusal(FailureClass::Transient, "FetchFailed"))?;
        for key in content.objects.keys() {
            let kind = KindName::of(key);
            let known = order::is_built_in(&kind.group)
                || content.definitions.contains_key(&kind)
                || self.run.known.contains(&kind)
                || self.server.is_served(&kind);
            if !known {
                return Err(refusal(FailureClass::Missing, "UnknownKind"));
            }
            if self.server.is_served(&kind) {
                self.run.known.insert(kind);
            }
        }
        self.kept.insert(name);
        Ok(content.clone())
    }

    /// A stale run loses; the same run only has an old version in its hands.
    fn write_record(&mut self, record: &Record) -> Answer {
        let mut record = record.clone();
        for _ in 0..3 {
            if let Ok(version) = self.records.write(&record) {
                self.changed();
                return Answer::RecordWritten { version };
            }
            let found = self.records.get(record.stack);
            if found.is_some_and(|found| found.session > self.run.session) {
                return Answer::Failed(refusal(FailureClass::Permanent, "Superseded"));
            }
            record.version = found.and_then(|found| found.version.clone());
        }
        Answer::Failed(refusal(FailureClass::Transient, "RecordNotWritten"))
    }
}

/// Whether it changes anything in the cluster.
fn writes(step: &Step) -> bool {
    matches!(
        step,
        Step::WriteRecord(_)
            | Step::DropRecord
            | Step::Apply { .. }
            | Step::Delete { .. }
            | Step::Release { .. }
    )
}

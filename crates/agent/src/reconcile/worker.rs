//! Executes steps with requests to the cluster and the broker. It makes no decisions.

use std::sync::Arc;

use brokkr_api::AgentId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::reason::Reason;
use brokkr_manifest::Key;
use jiff::SignedDuration;

use crate::broker_link::content::{self, ContentSource};
use crate::broker_link::holds::HeldStacks;
use crate::diagnose;
use crate::edits;
use crate::execute::{Cluster, Rights, Writes, roles};
use crate::grant;
use crate::inventory::{RecordError, Records};
use crate::model::{Content, Failure, FailureClass, Record, Step, StepResult, Uid};
use crate::resource::Kind;

#[derive(Clone)]
pub struct Worker {
    pub agent: AgentId,
    /// The agent's own namespace.
    pub home: Arc<str>,
    pub session: i64,
    pub cluster: Cluster,
    pub records: Records,
    pub rights: Rights,
    pub content: ContentSource,
    pub holds: HeldStacks,
    pub stable_after: SignedDuration,
}

impl Worker {
    pub async fn carry_out(&self, step: &Step, target: &TargetStack) -> StepResult {
        match step {
            Step::Hold => self.hold(target).await,
            Step::Fetch => match self.content.fetch(&self.cluster, target).await {
                Ok(content) => StepResult::Fetched(content),
                Err(failure) => StepResult::Failed(failure),
            },
            Step::FetchEarlier { sequence } => {
                match self.content.earlier(&self.cluster, target, *sequence).await {
                    Ok(content) => StepResult::FetchedEarlier(content),
                    Err(failure) => StepResult::Failed(failure),
                }
            }
            Step::WriteRecord(record) => self.write_record(record).await,
            Step::DropRecord => self.drop_record(target).await,
            Step::ForgetContents { keep } => {
                match self.content.contents.evict(target.stack_id, &[*keep]).await {
                    Ok(()) => StepResult::ContentsForgotten,
                    Err(error) => StepResult::Failed(content::cache_failure(&error)),
                }
            }
            Step::ReadObject { key, kind } => self.cluster.read_object(kind, key).await,
            Step::CheckRights { content } => match self.writes(target) {
                Ok(writes) => self.check_rights(&writes, content).await,
                Err(refusal) => refusal,
            },
            Step::Resolve { kinds, .. } => self.content.kinds.await_served(&self.cluster, kinds).await,
            Step::ListContained { key, .. } => self.cluster.list_contained(key).await,
            Step::DryRun { desired, uid, stamp } => match self.writes(target) {
                Ok(writes) => writes.dry_run(desired, uid.as_ref(), stamp).await,
                Err(refusal) => refusal,
            },
            Step::Apply { desired, uid, stamp, .. } => match self.writes(target) {
                Ok(writes) => writes.apply(desired, uid.as_ref(), stamp).await,
                Err(refusal) => refusal,
            },
            Step::FindRivals { desired, stamp } => match self.writes(target) {
                Ok(writes) => writes.rivals(desired, stamp).await,
                Err(refusal) => refusal,
            },
            Step::ReadEdits { desired, since } => {
                match self.cluster.read(&desired.kind.object_path(&desired.key)).await {
                    Ok(Some(live)) => {
                        StepResult::EditsRead(edits::edits(&desired.body.to_value(), &live, *since))
                    }
                    Ok(None) => StepResult::Gone,
                    Err(failure) => StepResult::Failed(failure),
                }
            }
            Step::ReadDrift { desired, .. } => {
                match self.cluster.read(&desired.kind.object_path(&desired.key)).await {
                    Ok(Some(live)) => StepResult::EditsRead(Some(edits::changes(
                        &desired.body.to_value(),
                        &live,
                        self.agent,
                    ))),
                    Ok(None) => StepResult::Gone,
                    Err(failure) => StepResult::Failed(failure),
                }
            }
            Step::Diagnose { desired } => {
                let body = desired.body.to_value();
                match diagnose::diagnose(&self.cluster, &desired.kind, &desired.key, &body).await {
                    Ok(cause) => StepResult::Diagnosed(cause),
                    Err(failure) => StepResult::Failed(failure),
                }
            }
            Step::Delete { key, kind, uid } => match self.writes(target) {
                Ok(writes) => writes.delete(kind, key, uid).await,
                Err(refusal) => refusal,
            },
            Step::Reclaim { key, kind, uid } => self.reclaim(target, kind, key, uid).await,
            Step::Release { key, kind, uid, .. } => match self.writes(target) {
                Ok(writes) => writes.release(kind, key, uid).await,
                Err(refusal) => refusal,
            },
        }
    }

    /// Returns the writes with the identity for this stack. If it has none, nothing is written, whatever was
    /// planned.
    fn writes(&self, target: &TargetStack) -> Result<Writes, StepResult> {
        match grant::acting(target) {
            Ok(acting) => Ok(self.cluster.acting_as(&acting)),
            Err(reason) => Err(StepResult::Failed(Failure::new(FailureClass::Permanent, reason))),
        }
    }

    async fn check_rights(&self, writes: &Writes, content: &Content) -> StepResult {
        let refused = roles::refused(&self.rights, writes, self.agent, content).await;
        if !refused.is_empty() {
            return StepResult::RightsChecked(refused);
        }
        let objects = content.objects.values().map(|desired| (&desired.kind, &desired.key));
        match self.rights.missing(writes, objects).await {
            Ok(lacking) => StepResult::RightsChecked(lacking),
            Err(failure) => StepResult::Failed(failure),
        }
    }

    /// Announces the stack, because the broker must know that it is held before the first write for it.
    async fn hold(&self, target: &TargetStack) -> StepResult {
        match self.holds.hold(target.stack_id).await {
            Ok(()) => StepResult::Held,
            Err(error) => StepResult::Failed(Failure {
                retry_after: error.retry_after(),
                ..Failure::with_words(FailureClass::Transient, Reason::BrokerUnreachable, &error)
            }),
        }
    }

    /// Releases an object whose sequence id was raised, if the record proves that no newer run of this agent raised it.
    async fn reclaim(&self, target: &TargetStack, kind: &Kind, key: &Key, uid: &Uid) -> StepResult {
        let writes = match self.writes(target) {
            Ok(writes) => writes,
            Err(refusal) => return refusal,
        };
        match self.records.fetch(&target.stack_name, target.stack_id).await {
            Ok(Some(found)) if found.session > self.session => return superseded(),
            Ok(Some(_)) => {}
            Ok(None) => {
                let reason = Reason::RecordNotWritten;
                return StepResult::Failed(Failure::new(FailureClass::Transient, reason));
            }
            Err(error) => return StepResult::Failed(record_failure(&error)),
        }
        tracing::warn!(object = %key.display_name(), "another client has raised the sequence id of this object; adopting it again");
        match writes.release(kind, key, uid).await {
            StepResult::Released => StepResult::Reclaimed,
            other => other,
        }
    }

    async fn write_record(&self, record: &Record) -> StepResult {
        if let Err(failure) = self.cluster.check_may_write() {
            return StepResult::Failed(failure);
        }
        let mut record = record.clone();
        // If a user edited the record, only its resourceVersion is newer, and the record is overwritten. If a newer run of this
        // agent wrote it, this run is superseded. If an earlier run wrote it after this one had read it, it is adopted.
        for _ in 0..3 {
            match self.records.write(&record).await {
                Ok(version) => {
                    self.holds.note(&record);
                    return StepResult::RecordWritten { version };
                }
                Err(RecordError::Stale) => match self.records.fetch(&record.stack_name, record.stack).await {
                    Ok(Some(found)) if found.session > self.session => return superseded(),
                    Ok(Some(found)) if record.is_behind(&found) => {
                        self.holds.note(&found);
                        return StepResult::RecordFound(Box::new(found));
                    }
                    Ok(found) => record.version = found.and_then(|found| found.version),
                    Err(error) => return StepResult::Failed(record_failure(&error)),
                },
                Err(error) => return StepResult::Failed(record_failure(&error)),
            }
        }
        StepResult::Failed(record_failure(&RecordError::Stale))
    }

    /// Deletes the record last, so that a crash leaves no cached content of a stack without a record.
    async fn drop_record(&self, target: &TargetStack) -> StepResult {
        if let Err(error) = self.content.contents.evict(target.stack_id, &[]).await {
            return StepResult::Failed(content::cache_failure(&error));
        }
        let (name, stack) = (&target.stack_name, target.stack_id);
        for _ in 0..3 {
            match self.records.delete(name, stack).await {
                Ok(()) => return StepResult::RecordDropped,
                Err(RecordError::Stale) => match self.records.fetch(name, stack).await {
                    Ok(Some(found)) if found.session > self.session => return superseded(),
                    Ok(_) => {}
                    Err(error) => return StepResult::Failed(record_failure(&error)),
                },
                Err(error) => return StepResult::Failed(record_failure(&error)),
            }
        }
        StepResult::Failed(record_failure(&RecordError::Stale))
    }
}

fn superseded() -> StepResult {
    StepResult::Failed(Failure::new(FailureClass::Permanent, Reason::Superseded))
}

fn record_failure(error: &RecordError) -> Failure {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let cause: String = causes.map(|cause| format!(": {cause}")).collect();
    Failure::with_words(FailureClass::Transient, Reason::RecordNotWritten, format!("{error}{cause}"))
}

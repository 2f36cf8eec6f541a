//! Conditions that must hold at every step, whatever happens. The first violation ends the story.
//!
//! Some are checked when a step is planned, against the knowledge of this run; some when it is carried out,
//! against the real state. While other clients change the same objects (`racing`), some of the conditions on
//! the real state cannot hold and are not checked.

mod failures;
mod order;
pub mod truth;

use std::collections::BTreeMap;

use brokkr_agent::grant;
use brokkr_agent::model::{ApplyReason, Record, Step, StepResult};
use brokkr_agent::resource::{is_job, is_prerequisite};
use brokkr_api::envelope::Removal;
use brokkr_api::ids::Checksum;
use brokkr_api::report::{Report, Transition};
use brokkr_api::{SequenceId, StackId};
use brokkr_manifest::{Hook, Key};
use jiff::Timestamp;

use failures::Failures;
use order::Order;

use crate::run::{Request, Run};
use crate::server::Object;
use crate::world::{Checked, World};

#[derive(Clone, Default)]
pub struct Invariants {
    /// Whether others change objects while the agent works.
    pub racing: bool,
    /// Whether J3, J4, J5 and the second half of D2 are checked.
    pub strict: bool,
    failures: Failures,
    order: Order,
    /// The objects that were applied since the record got its current sequence id, with their contents.
    applied: BTreeMap<StackId, BTreeMap<Key, Checksum>>,
    /// The sequence id of the last delivery that began.
    begun: BTreeMap<StackId, SequenceId>,
    /// The version at which the contents of a namespace or definition were listed.
    listed: BTreeMap<Key, u64>,
}

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(violation()) }
}

impl Invariants {
    /// Checks a planned step against the knowledge of this run.
    pub fn on_planned(&self, run: &Run, request: &Request) -> Checked {
        let Some(key) = request.step.key() else { return Ok(()) };
        let known = run.knows(request.stack, key);
        let uid = known.map(|seen| &seen.uid);
        match &request.step {
            Step::Apply { uid: named, .. } => ensure(named.as_ref() == uid, || {
                format!("S1: {key} is applied without the uid that was observed")
            }),
            Step::Delete { uid: named, .. } => {
                ensure(Some(named) == uid, || {
                    format!("S7: {key} is deleted with another uid than the observed one")
                })?;
                let record = run.state.stacks.get(&request.stack).and_then(|stack| stack.record.as_ref());
                let kept = known.is_some_and(|seen| seen.keep)
                    && !record.is_some_and(|record| is_rolled_back(record, key));
                let spared = kept || known.is_some_and(|seen| seen.has_owner);
                ensure(!spared, || format!("B5, B6: {key} is deleted although it is kept or has an owner"))
            }
            Step::Release { uid: named, .. } | Step::Reclaim { uid: named, .. } => {
                ensure(Some(named) == uid, || {
                    format!("C5: {key} is released with another uid than the observed one")
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks a step that is about to be carried out against the record and the real state.
    pub fn before(&self, world: &World, request: &Request) -> Checked {
        let stack = request.stack;
        let record = world.records.known(stack);
        if let Step::WriteRecord(next) = &request.step {
            return self.before_record(world, record, next);
        }
        if matches!(request.step, Step::DropRecord) {
            return before_drop(world, stack, record);
        }
        let Some(key) = request.step.key().filter(|_| is_write(&request.step)) else { return Ok(()) };
        ensure(world.broker.held.contains(&stack) || world.broker.away, || {
            format!("A9: {key} is written before the broker knows that the stack is held")
        })?;
        let Some((record, entry)) = record.and_then(|record| Some((record, record.inventory.get(key)?)))
        else {
            return Err(format!("S9: {key} is written but is not in the record"));
        };
        ensure(grant::refused(request.target.grant.as_ref(), [key]).is_empty(), || {
            format!("S12: {key} is written although its grant does not cover it")
        })?;
        let object = world.server.objects.get(key);
        self.check_owner(world, stack, key, object)?;
        match &request.step {
            Step::Apply { desired, why: ApplyReason::Deliver, .. } => {
                let content = world.broker.content(record.sequence);
                let fits = content.and_then(|content| content.objects.get(key));
                let fits = record.removal.is_none() && fits.is_some_and(|fits| fits.digest == desired.digest);
                ensure(fits, || {
                    format!("S2: {key} is applied with other content than that of {}", record.sequence)
                })?;
                if self.strict { self.order.check(world, record, desired, &self.failures) } else { Ok(()) }
            }
            Step::Apply { uid, .. } => {
                ensure(record.removal.is_none(), || {
                    format!("E2: {key} is repaired while its stack is removed")
                })?;
                // With a uid, the server does not create the object.
                ensure(object.is_some() || uid.is_some() || !entry.completed, || {
                    format!("B8: {key} is run again although it had completed")
                })
            }
            Step::Delete { uid, .. } => {
                let Some(object) = object.filter(|object| object.uid == *uid) else { return Ok(()) };
                let marked = object.marks.stack == Some(stack.to_string());
                let written = entry.digest.is_some() && entry.uid.as_ref() == Some(uid);
                ensure(marked || written, || format!("C5: {key} is deleted although it is not ours"))?;
                self.before_delete(world, record, key, object)
            }
            _ => Ok(()),
        }
    }

    /// C4, S11: an object with the metadata of another owner is neither written nor deleted, except in a handover.
    fn check_owner(&self, world: &World, stack: StackId, key: &Key, object: Option<&Object>) -> Checked {
        let Some(marks) = object.map(|object| &object.marks) else { return Ok(()) };
        if marks.id != Some(key.to_string()) {
            return Ok(());
        }
        let other_agent = marks.agent.as_ref().is_some_and(|agent| *agent != world.agent.to_string());
        ensure(!other_agent, || format!("C4: {key} is written although it belongs to another agent"))?;
        let other = world
            .run
            .state
            .stacks
            .iter()
            .find(|(id, _)| marks.stack == Some(id.to_string()) && **id != stack);
        let wanted_there = other.and_then(|(_, state)| state.goal.as_ref()).is_some_and(|goal| {
            let content = world.broker.content(goal.target.sequence_id);
            goal.target.removal.is_none() && content.is_some_and(|content| content.objects.contains_key(key))
        });
        ensure(!wanted_there, || format!("S11: {key} is written although another stack owns and wants it"))
    }

    fn before_delete(&self, world: &World, record: &Record, key: &Key, object: &Object) -> Checked {
        if record.removal.is_none() {
            let Some(content) = world.broker.content(record.sequence) else { return Ok(()) };
            let desired = content.objects.get(key);
            let fails = |hook: Hook| object.has_failed && hook.delete_when_failed;
            let is_replaced =
                desired.is_some_and(|desired| {
                    desired.replace || desired.is_temporary() || desired.hook.is_some_and(fails)
                }) || record.job(key).is_some_and(|step| step.replaces.as_ref() == Some(&object.uid));
            let desired = desired.is_some();
            ensure(!desired || is_replaced || is_rolled_back(record, key), || {
                format!("B5: {key} is deleted although it is desired")
            })?;
            ensure(desired || self.is_complete(world, record), || {
                format!("B5: {key} is pruned before everything is applied")
            })?;
        }
        if !self.racing {
            ensure(!object.is_kept() || is_rolled_back(record, key), || {
                format!("B5: {key} is deleted although its annotation keeps it")
            })?;
            ensure(object.owner.is_none(), || format!("B6: {key} is deleted although it has an owner"))?;
        }
        if is_prerequisite(key) {
            ensure(object.made_by_brokkr, || {
                format!("C6: {key} is deleted although it existed before Brokkr")
            })?;
            let listed = self.listed.get(key).copied().unwrap_or_default();
            let lost = world
                .server
                .inside(key)
                .find(|(_, inner)| inner.owner.is_none() && (inner.born <= listed || !self.racing));
            ensure(lost.is_none(), || {
                format!("C6: {key} is deleted with {} inside", lost.expect("found").0)
            })?;
        }
        Ok(())
    }

    fn is_complete(&self, world: &World, record: &Record) -> bool {
        let Some(content) = world.broker.content(record.sequence) else { return false };
        let applied = self.applied.get(&record.stack);
        content
            .objects
            .iter()
            // A hook may be for another phase, and a Job may have run before.
            .filter(|(key, desired)| {
                desired.hook.is_none() && !(is_job(key) && order::is_ready(world, desired))
            })
            .all(|(key, desired)| applied.is_some_and(|applied| applied.get(key) == Some(&desired.digest)))
    }

    fn before_record(&self, world: &World, kept: Option<&Record>, next: &Record) -> Checked {
        ensure(world.broker.held.contains(&next.stack) || world.broker.away, || {
            "A9: a record is written before the broker knows that the stack is held".to_owned()
        })?;
        let is_new = |report: &&Report| {
            let already = kept.is_some_and(|kept| kept.reports.contains(*report));
            !already && !world.broker.reports.contains_key(&report.id)
        };
        if self.strict {
            let mut new = next.reports.iter().filter(is_new);
            new.try_for_each(|report| truth::check(world, report, &self.failures))?;
        }
        let reported = |transition: Transition| {
            next.reports.iter().find(|report| report.transition == transition && is_new(report))
        };
        if let Some(report) = reported(Transition::Applied) {
            ensure(report.sequence_id == next.sequence && self.is_complete(world, next), || {
                format!("D4: {} is reported as applied, but not everything is", report.sequence_id)
            })?;
        }
        if reported(Transition::Removed).is_some() {
            ensure(kept.is_some_and(|kept| kept.removal.is_some()), || {
                "E5: reported as removed, but no removal was stored".to_owned()
            })?;
            ensure(next.inventory.is_empty(), || {
                "E2: reported as removed, but the inventory is not empty".to_owned()
            })?;
        }
        let Some(kept) = kept else { return Ok(()) };
        // A removal that is cancelled went with the newest version; the objects have the version of the stamp.
        let is_cancelled = kept.removal == Some(Removal::Untargeted) && next.removal.is_none();
        let begun = if is_cancelled { kept.stamp } else { kept.sequence };
        ensure(next.sequence >= begun, || {
            format!("S2: the record goes back from {} to {}", kept.sequence, next.sequence)
        })?;
        // An object that leaves the record must be gone, or no longer ours: otherwise it is leaked.
        let leaked = kept.inventory.keys().filter(|key| !next.inventory.contains_key(*key)).find(|key| {
            world.server.objects.get(*key).is_some_and(|object| {
                object.owner.is_none()
                    && object.is_marked(&world.agent.to_string())
                    && object.marks.stack == Some(kept.stack.to_string())
            })
        });
        ensure(leaked.is_none(), || {
            format!("S9: {} leaves the record but is still ours", leaked.expect("found"))
        })
    }

    /// Notes the answer that the agent gets; `is_injected` if it is not that of the server.
    pub fn on_answer(&mut self, request: &Request, answer: &StepResult, is_injected: bool, now: Timestamp) {
        self.failures.note(request, answer, is_injected, now);
    }

    /// Updates the state after a step was carried out.
    pub fn after(&mut self, world: &World, request: &Request, answer: &StepResult) -> Checked {
        match (&request.step, answer) {
            (Step::Apply { desired, .. }, StepResult::Applied { .. }) => {
                let applied = self.applied.entry(request.stack).or_default();
                applied.insert(desired.key.clone(), desired.digest);
                self.order.written(request.stack, request.target.sequence_id, desired);
            }
            (Step::ListContained { key, .. }, StepResult::Contained(_)) => {
                self.listed.insert(key.clone(), world.server.version);
            }
            (Step::WriteRecord(next), StepResult::RecordWritten { .. }) if next.applied.is_none() => {
                // A delivery begins, or finds objects that it is going to adopt: these have to be applied.
                let open = next.outcome.as_ref().is_none_or(|outcome| outcome.sequence != next.sequence);
                let is_first = self.begun.insert(request.stack, next.sequence) != Some(next.sequence);
                let applied = self.applied.entry(request.stack).or_default();
                applied.retain(|key, _| {
                    let entry = next.inventory.get(key);
                    !open || !is_first && entry.is_some_and(|entry| entry.digest.is_some())
                });
            }
            _ => {}
        }
        Ok(())
    }
}

fn before_drop(world: &World, stack: StackId, record: Option<&Record>) -> Checked {
    let Some(record) = record else { return Ok(()) };
    ensure(record.is_removed(), || "E5: a record is deleted, but nothing was removed".to_owned())?;
    let reported = world.broker.reports.values().any(|report| {
        report.stack_id == stack
            && report.transition == Transition::Removed
            && report.sequence_id == record.sequence
    });
    ensure(reported, || "E2: a record is deleted before the broker knows of the removal".to_owned())
}

/// D1: returns whether the key was created by a failed delivery and is rolled back. `keep` applies only to prune.
fn is_rolled_back(record: &Record, key: &Key) -> bool {
    record.removal.is_none()
        && record.made.sequence == record.sequence
        && record.made.prerequisites.contains(key)
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Apply { .. } | Step::Delete { .. } | Step::Release { .. } | Step::Reclaim { .. })
}

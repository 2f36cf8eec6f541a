//! What the answer to a step changes in the record and in the progress.

use std::collections::HashSet;

use brokkr_api::report::Transition;
use jiff::Timestamp;

use super::steps::{Answer, Step, Why};
use super::types::{Failure, FailureClass, Origin, Progress, Record, Standing};
use super::{FORBIDDEN, NEXT_CYCLE, PARKED, RIGHTS_CYCLE, backoff, steady};
use crate::resource::is_ground;

/// How often something that is missing is asked for again before only an event helps.
const QUICK_TRIES: u32 = 4;

/// Takes an answer in. `record` is the one that the cluster holds, as far as known.
pub fn absorb(
    progress: &mut Progress,
    record: &mut Option<Record>,
    step: &Step,
    answer: &Answer,
    now: Timestamp,
) {
    if let Some(key) = step.key() {
        progress.unswept.remove(key);
    }
    // A look in between belongs to the waiting: what is waited for may tell nobody that it went.
    if !matches!(step, Step::Look { .. }) {
        progress.waiting_since = None;
    }
    match (step, answer) {
        (Step::WriteRecord(written), Answer::RecordWritten { version }) => {
            let mut written = (**written).clone();
            written.version = Some(version.clone());
            let told_repairs = written.reports.iter().any(|report| {
                report.transition == Transition::Repaired
                    && progress.repairs_reported.is_none_or(|last| report.at > last)
            });
            if told_repairs {
                progress.repairs = 0;
                progress.repairs_reported = Some(now);
            }
            // Repairs may have gone on beside a mere report; what they learnt is newer.
            let what = |record: &Record| {
                let made = record.made.clone();
                (record.sequence, record.applied, record.removal, record.checksum, made)
            };
            if let Some(known) = record.take()
                && what(&known) == what(&written)
                && known.inventory.keys().eq(written.inventory.keys())
            {
                written.inventory = known.inventory;
            }
            if written.applied == Some(written.sequence) && written.removal.is_none() {
                // Only a delivery asks for these; they would be two more copies of every key.
                progress.validated = HashSet::new();
                progress.written = HashSet::new();
            }
            *record = Some(written);
        }
        (Step::DropRecord, Answer::RecordDropped) => *record = None,
        (Step::FetchEarlier { .. }, Answer::FetchedEarlier(_)) => progress.earlier = true,
        (Step::Look { key, .. }, Answer::Looked(seen)) => {
            // A look answers for looks: without this, what fails again and again would never be waited for, or told.
            if !progress.failures.get(key).is_some_and(|standing| standing.of_apply) {
                progress.failures.remove(key);
            }
            progress.looked.insert(key.clone(), seen.clone());
        }
        (Step::LookInside { key, .. }, Answer::Inside(foreign)) => {
            progress.failures.remove(key);
            progress.inside.insert(key.clone(), foreign.clone());
        }
        (Step::CheckRights { .. }, Answer::RightsChecked(lacking)) => {
            progress.lacking = Some(lacking.clone());
        }
        // No verdict: the writes themselves will tell.
        (Step::CheckRights { .. }, Answer::Failed(_)) => progress.lacking = Some(Vec::new()),
        (Step::Resolve { key, .. }, Answer::Resolved) => {
            progress.failures.remove(key);
            progress.served.insert(key.clone());
        }
        (Step::DryRun { wanted, uid, .. }, Answer::Valid { exists }) => {
            progress.failures.remove(&wanted.key);
            progress.validated.insert(wanted.key.clone());
            if uid.is_none() && !exists {
                progress.looked.insert(wanted.key.clone(), None);
            }
        }
        (Step::DryRun { wanted, .. }, Answer::Failed(failure))
            if failure.class == FailureClass::Immutable && wanted.replace && !is_ground(&wanted.key) =>
        {
            progress.failures.remove(&wanted.key);
            progress.validated.insert(wanted.key.clone());
            progress.replace.insert(wanted.key.clone());
        }
        (Step::Apply { wanted, why, uid, ours, .. }, Answer::Applied { seen, created }) => {
            let key = &wanted.key;
            if *why != Why::PutBack {
                progress.failures.remove(key);
            }
            progress.not_put_back.remove(key);
            progress.looked.remove(key);
            progress.deleted.remove(key);
            progress.replace.remove(key);
            match why {
                Why::Deliver => {
                    progress.written.insert(key.clone());
                }
                Why::Sweep { version } if *version == seen.version => {}
                Why::Repair | Why::PutBack | Why::Sweep { .. } => {
                    progress.repairs += 1;
                    let fight = steady::fought(progress.fights.get(key).copied(), now);
                    progress.fights.insert(key.clone(), fight);
                    if fight.rounds == 1 {
                        progress.rivals.remove(key);
                    }
                }
            }
            if let Some(entry) = record.as_mut().and_then(|record| record.inventory.get_mut(key)) {
                if *created {
                    entry.origin = Origin::Created;
                } else if *ours && entry.uid.is_none() {
                    // Written by a run that ended before it could record so: what it intended is what it is.
                } else if uid.is_none() || entry.uid.as_ref() != Some(&seen.uid) {
                    // Somebody was faster, or made it anew: it is theirs, adopted.
                    entry.origin = Origin::Adopted;
                }
                entry.uid = Some(seen.uid.clone());
                entry.fields = seen.fields;
                entry.digest = Some(wanted.digest);
                entry.kind = wanted.kind.clone();
            }
        }
        (Step::Contend { wanted, .. }, Answer::Contended(rivals)) => {
            progress.rivals.insert(wanted.key.clone(), rivals.clone());
        }
        (Step::Diagnose { wanted }, Answer::Diagnosed(cause)) => {
            progress.causes.insert(wanted.key.clone(), (now, cause.clone()));
        }
        // Only what would have been said is lost.
        (Step::Contend { wanted, .. }, Answer::Failed(_)) => {
            progress.rivals.insert(wanted.key.clone(), Vec::new());
        }
        (Step::Diagnose { wanted }, Answer::Failed(_)) => {
            progress.causes.insert(wanted.key.clone(), (now, None));
        }
        (Step::Delete { key, .. }, Answer::DeleteAccepted) => {
            progress.failures.remove(key);
            progress.looked.remove(key);
            progress.deleted.insert(key.clone());
        }
        (Step::Delete { key, .. } | Step::Release { key, .. }, Answer::Gone) => {
            progress.failures.remove(key);
            progress.looked.insert(key.clone(), None);
        }
        (Step::Release { key, because, .. }, Answer::Released) => {
            progress.failures.remove(key);
            progress.left.insert(key.clone(), because.to_string());
        }
        (step, Answer::Failed(failure)) => fail(progress, step, failure, now),
        _ => {}
    }
}

fn fail(progress: &mut Progress, step: &Step, failure: &Failure, now: Timestamp) {
    if matches!(step, Step::Fetch) {
        progress.fetch = Some(standing(progress.fetch.as_ref(), failure, now));
    }
    // Not about an object: whoever carries the step out decides when it is tried again.
    let Some(key) = step.key() else { return };
    // Not what we thought it was, or unknown whether it was carried out: ask again before the next decision.
    if failure.class == FailureClass::Conflict || matches!(step, Step::Apply { .. } | Step::Delete { .. }) {
        progress.looked.remove(key);
        progress.inside.remove(key);
    }
    let failures = match step {
        Step::Apply { why: Why::PutBack, .. } => &mut progress.not_put_back,
        _ => &mut progress.failures,
    };
    let mut standing = standing(failures.get(key), failure, now);
    standing.of_apply = matches!(step, Step::Apply { .. } | Step::DryRun { .. });
    failures.insert(key.clone(), standing);
}

fn standing(earlier: Option<&Standing>, failure: &Failure, now: Timestamp) -> Standing {
    let attempts = earlier.map_or(0, |standing| standing.attempts) + 1;
    let since = earlier.map_or(now, |standing| standing.since);
    let pause = match failure.class {
        FailureClass::Permanent if failure.reason == FORBIDDEN => RIGHTS_CYCLE,
        FailureClass::Permanent | FailureClass::Immutable => NEXT_CYCLE,
        // An event that it came may be ahead of what serves it: a few quick tries, then no more without an event.
        FailureClass::Missing if attempts <= QUICK_TRIES => backoff(attempts, None) / 4,
        FailureClass::Missing => PARKED,
        FailureClass::Conflict if attempts <= 3 => jiff::SignedDuration::ZERO,
        FailureClass::Conflict | FailureClass::Transient => backoff(attempts, failure.retry_after),
    };
    Standing { failure: failure.clone(), of_apply: false, attempts, since, retry_at: now + pause }
}

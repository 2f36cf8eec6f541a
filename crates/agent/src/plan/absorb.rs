//! What the answer to a step changes in the record and in the progress.

use brokkr_api::report::Transition;
use jiff::Timestamp;

use super::steps::{Answer, Step};
use super::types::{Failure, FailureClass, Origin, Progress, Record, Standing};
use super::{NEXT_CYCLE, backoff, steady};

/// Takes an answer in. `record` is the one that the cluster holds, as far as known.
pub fn absorb(
    progress: &mut Progress,
    record: &mut Option<Record>,
    step: &Step,
    answer: &Answer,
    now: Timestamp,
) {
    progress.waiting_since = None;
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
            let what = |record: &Record| (record.sequence, record.applied, record.removal, record.checksum);
            if let Some(known) = record.take()
                && what(&known) == what(&written)
                && known.inventory.keys().eq(written.inventory.keys())
            {
                written.inventory = known.inventory;
            }
            *record = Some(written);
        }
        (Step::DropRecord, Answer::RecordDropped) => *record = None,
        (Step::Look { key, .. }, Answer::Looked(seen)) => {
            progress.failures.remove(key);
            progress.looked.insert(key.clone(), seen.clone());
        }
        (Step::LookInside { key, .. }, Answer::Inside(foreign)) => {
            progress.failures.remove(key);
            progress.inside.insert(key.clone(), foreign.clone());
        }
        (Step::DryRun { wanted, .. }, Answer::Valid) => {
            progress.failures.remove(&wanted.key);
            progress.validated.insert(wanted.key.clone());
        }
        (Step::Apply { wanted, repair, uid, .. }, Answer::Applied { seen, created }) => {
            let key = &wanted.key;
            progress.failures.remove(key);
            progress.looked.remove(key);
            progress.deleted.remove(key);
            if *repair {
                progress.repairs += 1;
                let fight = progress.fights.get(key).copied();
                progress.fights.insert(key.clone(), steady::fought(fight, now));
            } else {
                progress.written.insert(key.clone());
            }
            if let Some(entry) = record.as_mut().and_then(|record| record.inventory.get_mut(key)) {
                if *created {
                    entry.origin = Origin::Created;
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
        (Step::Delete { key, .. }, Answer::DeleteAccepted) => {
            progress.failures.remove(key);
            progress.looked.remove(key);
            progress.deleted.insert(key.clone());
        }
        (Step::Delete { key, .. } | Step::Release { key, .. }, Answer::Gone) => {
            progress.failures.remove(key);
            progress.looked.insert(key.clone(), None);
        }
        (Step::Release { key, .. }, Answer::Released) => {
            progress.failures.remove(key);
            let why = match progress.inside.get(key) {
                Some(foreign) if !foreign.is_empty() => format!("contains {}", foreign.join(", ")),
                _ => "was there before, is kept, or is still needed".to_owned(),
            };
            progress.left.insert(key.clone(), why);
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
    let standing = standing(progress.failures.get(key), failure, now);
    progress.failures.insert(key.clone(), standing);
}

fn standing(earlier: Option<&Standing>, failure: &Failure, now: Timestamp) -> Standing {
    let attempts = earlier.map_or(0, |standing| standing.attempts) + 1;
    let since = earlier.map_or(now, |standing| standing.since);
    let pause = match failure.class {
        FailureClass::Permanent => NEXT_CYCLE,
        FailureClass::Conflict if attempts <= 3 => jiff::SignedDuration::ZERO,
        FailureClass::Conflict | FailureClass::Transient => backoff(attempts, failure.retry_after),
    };
    Standing { failure: failure.clone(), attempts, since, retry_at: now + pause }
}

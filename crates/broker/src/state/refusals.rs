//! Refused attempts on their way to the audit log. Attempts of one caller on one route for one reason are folded into one
//! entry with their number, so that a flood costs neither memory nor disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brokkr_api::audit::RefusalReason;

use crate::domain::audit::AuditRecord;

/// The largest number of callers, routes and reasons in memory.
const CAPACITY: usize = 10_000;
/// The first attempt is written at once; later ones are folded for this long.
const FOLD: Duration = Duration::from_secs(60);

/// What is folded into one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: String,
    method: String,
    route: String,
    refusal: Option<RefusalReason>,
}

#[derive(Debug)]
struct Folded {
    /// The newest attempt.
    record: AuditRecord,
    /// How many attempts are not written yet.
    count: u64,
    written: Option<Instant>,
}

impl Folded {
    fn is_due(&self, now: Instant) -> bool {
        self.count > 0 && self.written.is_none_or(|at| now.saturating_duration_since(at) >= FOLD)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Refusals {
    folded: Arc<Mutex<HashMap<Key, Folded>>>,
    dropped: Arc<std::sync::atomic::AtomicU64>,
}

impl Refusals {
    /// Adds an attempt. Never waits; drops the attempt if there are too many callers.
    pub fn push(&self, record: AuditRecord) {
        let key = Key {
            principal: record.principal.clone(),
            method: record.method.clone(),
            route: record.route.clone(),
            refusal: record.refusal,
        };
        let mut folded = self.lock();
        if let Some(known) = folded.get_mut(&key) {
            known.count += record.count;
            known.record = record;
        } else if folded.len() < CAPACITY {
            let count = record.count;
            folded.insert(key, Folded { record, count, written: None });
        } else {
            self.count_dropped(record.count);
        }
    }

    /// Takes up to `limit` entries that are due, and forgets what was quiet for a while. With `all`, everything counts as
    /// due.
    pub fn take(&self, limit: usize, now: Instant, all: bool) -> Vec<AuditRecord> {
        let mut folded = self.lock();
        folded.retain(|_, entry| entry.count > 0 || entry.written.is_none_or(|at| now - at < FOLD));
        let due = folded.values_mut().filter(|entry| entry.is_due(now) || (all && entry.count > 0));
        due.take(limit)
            .map(|entry| {
                entry.written = Some(now);
                AuditRecord { count: std::mem::take(&mut entry.count), ..entry.record.clone() }
            })
            .collect()
    }

    /// Counts attempts that could not be written.
    pub fn count_dropped(&self, attempts: u64) {
        self.dropped.fetch_add(attempts, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the number of attempts dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, std::sync::atomic::Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Folded>> {
        self.folded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(principal: &str, reason: RefusalReason) -> AuditRecord {
        let record = AuditRecord::by_operator("", "");
        AuditRecord { principal: principal.to_owned(), refusal: Some(reason), ..record }
    }

    #[test]
    fn attempts_are_folded_by_caller_and_reason_and_none_is_lost() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        for _ in 0..1000 {
            refusals.push(attempt("agent:1", RefusalReason::NotTargeted));
        }
        refusals.push(attempt("agent:1", RefusalReason::OverBudget));
        refusals.push(attempt("agent:2", RefusalReason::NotTargeted));
        let mut counts: Vec<u64> = refusals.take(10, start, false).iter().map(|it| it.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 1000]);
        // Later attempts wait until the minute is over.
        refusals.push(attempt("agent:1", RefusalReason::NotTargeted));
        refusals.push(attempt("agent:1", RefusalReason::NotTargeted));
        assert!(refusals.take(10, start + FOLD / 2, false).is_empty());
        let later = refusals.take(10, start + FOLD, false);
        assert_eq!(later.iter().map(|it| it.count).collect::<Vec<_>>(), [2]);
        assert_eq!(refusals.lock().len(), 1, "what was quiet for a minute is forgotten");
        // The end of the process waits for nothing.
        refusals.push(attempt("agent:1", RefusalReason::NotTargeted));
        assert_eq!(refusals.take(10, start + FOLD, true).len(), 1);
        assert_eq!(refusals.take_dropped(), 0);
    }

    #[test]
    fn memory_is_bounded_and_what_is_dropped_is_counted() {
        let refusals = Refusals::default();
        for caller in 0..CAPACITY + 7 {
            refusals.push(attempt(&caller.to_string(), RefusalReason::NotTargeted));
        }
        assert_eq!((refusals.lock().len(), refusals.take_dropped()), (CAPACITY, 7));
    }
}

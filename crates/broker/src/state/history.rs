//! The history marks that the database is known to have, so that polls need no SQL to check theirs.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use brokkr_api::HistoryMark;

/// A mark is made for each change, but agents show only the latest ones.
pub const MOST: usize = 4096;
/// Marks that are committed at the same time are among this many.
const RECENT: usize = 64;

/// Marks of one history. They are forgotten together when the database turns out to have another history, or when its epoch
/// is raised, which settles what was lost before.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    epoch: i64,
    /// Counts the changes of the latest mark.
    version: u64,
    /// Counts the histories.
    restarts: u64,
    marks: BTreeSet<HistoryMark>,
}

/// The latest marks that a replica knows, highest first. What it finds in a database counts only together with these:
/// otherwise, the database may have another history. Several, because marks are not committed in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentMarks {
    pub epoch: i64,
    pub marks: Vec<HistoryMark>,
    version: u64,
}

impl History {
    /// Returns whether the database has the mark, as far as this replica knows.
    #[must_use]
    pub fn has(&self, mark: HistoryMark) -> bool {
        self.read().marks.contains(&mark)
    }

    /// Returns the latest known marks and their epoch. If the database has them, it has all known ones, or at least
    /// everything that they cover.
    #[must_use]
    pub fn recent(&self) -> RecentMarks {
        let known = self.read();
        let marks = known.marks.iter().rev().take(RECENT).copied().collect();
        RecentMarks { epoch: known.epoch, marks, version: known.version }
    }

    /// Returns how often all marks were forgotten. What was known before has to be checked again.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.read().restarts
    }

    /// Returns the epoch of the known marks.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.read().epoch
    }

    /// Records marks that were found together with `recent`. Returns false, and records nothing, if there are later ones by
    /// now: they may have been found in another database.
    pub fn record(&self, recent: &RecentMarks, marks: &[HistoryMark]) -> bool {
        let mut known = self.write();
        if known.version != recent.version {
            return false;
        }
        known.marks.extend(marks);
        while known.marks.len() > MOST {
            known.marks.pop_first();
        }
        if known.marks.last() != recent.marks.first() {
            known.version += 1;
        }
        true
    }

    /// Forgets all marks, because another history or another epoch began.
    pub fn restart(&self, epoch: i64) {
        let mut known = self.write();
        let (version, restarts) = (known.version + 1, known.restarts + 1);
        *known = Known { epoch, version, restarts, marks: BTreeSet::new() };
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_recorded_only_if_it_was_found_together_with_the_latest_ones() {
        let history = History::default();
        history.restart(1);
        let first = history.recent();
        assert!(history.record(&first, &[HistoryMark(7), HistoryMark(5)]));
        assert!(!history.record(&first, &[HistoryMark(9)]), "not together with the new latest one");
        let second = history.recent();
        assert_eq!((second.epoch, &second.marks), (1, &vec![HistoryMark(7), HistoryMark(5)]));
        assert!(history.record(&second, &[HistoryMark(6)]), "an earlier one");
        assert!(history.record(&second, &[HistoryMark(8)]), "the latest one is still the same");
        assert!(history.has(HistoryMark(5)) && history.has(HistoryMark(6)) && history.has(HistoryMark(8)));
        let (last, restarts) = (history.recent(), history.restarts());
        history.restart(2);
        assert!(!history.record(&last, &[HistoryMark(10)]));
        assert_eq!(history.recent().marks, []);
        assert!(!history.has(HistoryMark(5)) && history.restarts() > restarts);
    }

    #[test]
    fn the_earliest_marks_are_forgotten_first() {
        let history = History::default();
        for mark in 0..=MOST as u64 {
            history.record(&history.recent(), &[HistoryMark(mark)]);
        }
        assert!(!history.has(HistoryMark(0)));
        assert!(history.has(HistoryMark(1)));
        assert_eq!(history.recent().marks.len(), RECENT);
    }
}

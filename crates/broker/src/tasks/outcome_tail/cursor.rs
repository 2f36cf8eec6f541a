//! Up to where reports have been applied, and how recent that is.

use std::time::{Duration, Instant};

use brokkr_api::Position;
use jiff::Timestamp;

use crate::index::Freshness;

/// Events are kept for a day at least.
const OLDEST_CURSOR: Duration = Duration::from_secs(3600);

/// A moment at which the index was read from the database.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Every transaction below it had ended.
    pub position: Position,
    /// No transaction from this one on had begun.
    pub ceiling: u64,
    pub at: Timestamp,
}

impl Moment {
    pub fn of(freshness: &Freshness) -> Self {
        let at = Timestamp::now().checked_sub(freshness.at.elapsed()).unwrap_or(Timestamp::MIN);
        Self { position: freshness.position, ceiling: freshness.ceiling, at }
    }
}

/// Up to where reports have been applied.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The numbering of the slots.
    pub numbering: u64,
    /// Every report in a transaction below it has been applied.
    pub position: Position,
    /// Everything that was stored by then has been applied.
    pub as_of: Timestamp,
    /// The moment of which everything that was stored by then is applied next. A transaction that is open for long holds back the
    /// position, and so this one.
    pub awaited: Moment,
    pub read_at: Instant,
    pub silent_at: Instant,
}

impl Cursor {
    /// Records that everything below the position of this moment has been applied.
    pub fn reach(&mut self, now: Moment) {
        self.position = now.position;
        for moment in [self.awaited, now] {
            if moment.ceiling <= now.position.horizon {
                self.as_of = self.as_of.max(moment.at);
                self.awaited = now;
            }
        }
    }

    /// Returns whether reports can be read from here on.
    pub fn continues(&self, numbering: u64, now: Position) -> bool {
        self.numbering == numbering
            && self.position.epoch == now.epoch
            && self.position.horizon <= now.horizon
            && self.read_at.elapsed() < OLDEST_CURSOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: i64, horizon: u64, ceiling: u64) -> Moment {
        let at = Timestamp::from_second(second).unwrap();
        Moment { position: Position { epoch: 1, horizon }, ceiling, at }
    }

    #[test]
    fn a_view_is_as_recent_as_the_last_moment_before_which_everything_has_ended() {
        let (awaited, now) = (moment(10, 5, 5), Instant::now());
        let (position, as_of) = (awaited.position, awaited.at);
        let mut cursor = Cursor { numbering: 1, position, as_of, awaited, read_at: now, silent_at: now };
        let steps = [
            // Nothing is open.
            (moment(20, 6, 6), 20),
            // Transaction 7 is open for long. What was stored before it is in the view, and what was stored meanwhile is not.
            (moment(30, 7, 9), 20),
            (moment(40, 7, 12), 20),
            // It has ended, and 11 is open: everything that had begun at 30 is in the view.
            (moment(50, 11, 14), 30),
            (moment(60, 15, 15), 60),
        ];
        for (moment, second) in steps {
            cursor.reach(moment);
            assert_eq!((cursor.position, cursor.as_of.as_second()), (moment.position, second));
        }
    }
}

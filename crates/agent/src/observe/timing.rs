//! Intervals and time limits of a watch.

use std::time::Duration;

use rand::RngExt as _;

use crate::backoff::Backoff;

#[derive(Clone, Copy, Debug)]
pub struct WatchTiming {
    /// The delay after a failure, doubled up to `longest`.
    pub first: Duration,
    pub longest: Duration,
    /// The same for problems that do not resolve by themselves: a missing permission, or a kind that is not
    /// served.
    pub slow_first: Duration,
    pub slow_longest: Duration,
    /// The deadline for one page, or for the start of a watch.
    pub answer: Duration,
    /// The requested duration of a watch is between these, so that a dead connection is noticed.
    pub watch_least: Duration,
    pub watch_most: Duration,
    /// How much longer than requested a watch may last.
    pub margin: Duration,
    /// How long a watch may fail before its objects count as unobserved.
    pub blind_after: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(800),
            longest: Duration::from_secs(30),
            slow_first: Duration::from_secs(5),
            slow_longest: Duration::from_secs(60),
            answer: Duration::from_secs(60),
            watch_least: Duration::from_secs(45),
            watch_most: Duration::from_secs(75),
            margin: Duration::from_secs(5),
            blind_after: Duration::from_secs(60),
        }
    }
}

impl WatchTiming {
    /// Returns the delay after this many failures in a row; zero after none.
    #[must_use]
    pub fn backoff(&self, failures: u32) -> Duration {
        Backoff::new(self.first, self.longest).jittered(failures)
    }

    #[must_use]
    pub fn slow(&self, failures: u32) -> Duration {
        Backoff::new(self.slow_first, self.slow_longest).jittered(failures)
    }

    /// Returns the duration of the next watch: random, so that watches do not all end at once.
    #[must_use]
    pub fn watch(&self) -> Duration {
        rand::rng().random_range(self.watch_least..=self.watch_most)
    }
}

//! The schedule of sweeps: full checks of all objects.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::RngExt as _;

use crate::clock;

/// The schedule. It has jitter, so that the agents of a fleet do not sweep at the same time.
pub struct Sweeps {
    interval: Duration,
    pub next: Timestamp,
}

impl Sweeps {
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        let mut sweeps = Self { interval, next: clock::now() };
        sweeps.plan_next(clock::now());
        sweeps
    }

    /// Returns whether a sweep is due, and schedules the next one.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.next <= now;
        if due {
            self.plan_next(now);
        }
        due
    }

    fn plan_next(&mut self, now: Timestamp) {
        let pause = self.interval.mul_f64(rand::rng().random_range(0.75..1.25));
        self.next = now + SignedDuration::try_from(pause).unwrap_or(SignedDuration::from_hours(6));
    }
}

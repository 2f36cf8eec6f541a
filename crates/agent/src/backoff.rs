//! Exponential back-off for all retries of the agent.
//!
//! The delay is a function of the number of failures, because most callers store that number: the plan
//! (`plan.rs`) is a pure function and cannot keep a back-off between calls, and watches and polls reset their
//! count at any time.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use rand::RngExt as _;

/// The maximum number of doublings. All back-offs of the agent reach their maximum delay with fewer.
const MAX_DOUBLINGS: u32 = 32;

#[derive(Clone, Copy, Debug)]
pub struct Backoff(ExponentialBuilder);

impl Backoff {
    /// Doubles `first` with each failure, up to `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        let builder = ExponentialBuilder::new().with_factor(2.0).without_max_times();
        Self(builder.with_min_delay(first).with_max_delay(longest))
    }

    /// Returns the delay after this many failures in a row; zero after none.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let doublings = doublings.min(MAX_DOUBLINGS) as usize;
        self.0.build().nth(doublings).unwrap_or_default()
    }

    /// Returns a random duration between half the delay and the delay. Jitter is applied after the cap; otherwise all
    /// retries at the maximum delay would happen at the same time.
    #[must_use]
    pub fn jittered(&self, failures: u32) -> Duration {
        self.delay(failures).mul_f64(rand::rng().random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_one_second_first_doubled_up_to_a_minute() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let seconds: Vec<u64> = (0..10).map(|failures| backoff.delay(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX).as_secs(), 60);
        let jittered = backoff.jittered(7);
        assert!(Duration::from_secs(30) <= jittered && jittered <= Duration::from_secs(60), "{jittered:?}");
    }
}

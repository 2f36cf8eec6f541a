//! When a message is retried: soon at first, then over about three days, then never. With jitter, so that a recovering
//! receiver is not flooded.
//!
//! A table instead of a library such as `backon`: the attempts are stored and survive restarts, and the
//! schedule is documented step by step.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// Seconds to wait after the first, second, … failed attempt.
const SCHEDULE: [u64; 10] =
    [5, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR];
/// The longest `Retry-After` that is honoured.
const MAX_WAIT: Duration = Duration::from_secs(24 * HOUR);
/// The largest jitter, as a share of the wait.
const JITTER: f64 = 0.2;

/// Returns how long to wait after this number of failed attempts; none to give up. `random` is from 0 to 1;
/// `retry_after` is the wait that the receiver asked for in its `Retry-After` header.
#[must_use]
pub fn backoff(attempts: u32, random: f64, retry_after: Option<Duration>) -> Option<Duration> {
    let after = attempts.checked_sub(1)?;
    let planned = *SCHEDULE.get(usize::try_from(after).ok()?)?;
    let at_least = Duration::from_secs(planned).max(retry_after.unwrap_or_default()).min(MAX_WAIT);
    Some(at_least.mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_receiver_has_about_three_days_to_come_back() {
        let days = |random| {
            let waits = (1..).map_while(|attempts| backoff(attempts, random, None));
            waits.sum::<Duration>().as_secs_f64() / (24.0 * 3600.0)
        };
        assert!((3.0..3.5).contains(&days(0.0)), "{}", days(0.0));
        assert!((3.0..4.0).contains(&days(1.0)), "{}", days(1.0));
        assert_eq!(backoff(0, 0.0, None), None);
        assert_eq!(backoff(11, 0.0, None), None);
        assert_eq!(backoff(u32::MAX, 0.0, Some(MAX_WAIT)), None);
    }

    proptest! {
        #[test]
        fn the_wait_grows_has_jitter_and_honours_retry_after(
            attempts in 1u32..10, random in 0.0f64..1.0, asked in 0u64..1_000_000,
        ) {
            let plain = backoff(attempts, 0.0, None).unwrap();
            let spread = backoff(attempts, random, None).unwrap();
            prop_assert!(spread >= plain && spread <= plain.mul_f64(1.0 + JITTER));
            prop_assert!(backoff(attempts + 1, 0.0, None).unwrap() > plain);
            let asked = Duration::from_secs(asked);
            let patient = backoff(attempts, random, Some(asked)).unwrap();
            prop_assert!(patient >= asked.min(MAX_WAIT) && patient >= spread);
            prop_assert!(patient <= MAX_WAIT.mul_f64(1.0 + JITTER));
        }
    }
}

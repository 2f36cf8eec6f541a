//! When a message is tried again: soon at first, then over about three days, then never. Spread by chance, so that
//! a receiver that comes back is not met by everything at once.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// Seconds to wait after the first, second, … failed attempt.
const SCHEDULE: [u64; 10] =
    [5, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR];
/// A receiver may ask for patience, but not for ever.
const LONGEST: Duration = Duration::from_secs(24 * HOUR);
/// How much is added by chance, at most.
const SPREAD: f64 = 0.2;

/// How long to wait after so many failed attempts; none if it is given up. `chance` is from 0 to 1, `asked` is what the
/// receiver said in `Retry-After`.
#[must_use]
pub fn backoff(attempts: u32, chance: f64, asked: Option<Duration>) -> Option<Duration> {
    let after = attempts.checked_sub(1)?;
    let planned = *SCHEDULE.get(usize::try_from(after).ok()?)?;
    let at_least = Duration::from_secs(planned).max(asked.unwrap_or_default()).min(LONGEST);
    Some(at_least.mul_f64(1.0 + SPREAD * chance.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_receiver_has_about_three_days_to_come_back() {
        let days = |chance| {
            let waits = (1..).map_while(|attempts| backoff(attempts, chance, None));
            waits.sum::<Duration>().as_secs_f64() / (24.0 * 3600.0)
        };
        assert!((3.0..3.5).contains(&days(0.0)), "{}", days(0.0));
        assert!((3.0..4.0).contains(&days(1.0)), "{}", days(1.0));
        assert_eq!(backoff(0, 0.0, None), None);
        assert_eq!(backoff(11, 0.0, None), None);
        assert_eq!(backoff(u32::MAX, 0.0, Some(LONGEST)), None);
    }

    proptest! {
        #[test]
        fn it_grows_is_spread_and_waits_as_long_as_it_is_asked_to(
            attempts in 1u32..10, chance in 0.0f64..1.0, asked in 0u64..1_000_000,
        ) {
            let plain = backoff(attempts, 0.0, None).unwrap();
            let spread = backoff(attempts, chance, None).unwrap();
            prop_assert!(spread >= plain && spread <= plain.mul_f64(1.0 + SPREAD));
            prop_assert!(backoff(attempts + 1, 0.0, None).unwrap() > plain);
            let asked = Duration::from_secs(asked);
            let patient = backoff(attempts, chance, Some(asked)).unwrap();
            prop_assert!(patient >= asked.min(LONGEST) && patient >= spread);
            prop_assert!(patient <= LONGEST.mul_f64(1.0 + SPREAD));
        }
    }
}

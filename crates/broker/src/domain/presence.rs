//! The presence of an agent, relative to how often it polls.

use brokkr_api::why::Presence;
use jiff::Timestamp;

/// Missed polls after which an agent is late.
pub const LATE_AFTER: u32 = 3;
/// Missed polls after which an agent is silent.
pub const SILENT_AFTER: u32 = 10;
/// The shortest polling interval that is assumed; also used for agents that do not announce one.
pub const POLL_SECONDS: u32 = 30;

#[must_use]
pub fn presence(last_seen: Option<Timestamp>, poll_seconds: u32, now: Timestamp) -> Presence {
    let Some(last_seen) = last_seen else { return Presence::Never };
    let missed = now.duration_since(last_seen).as_secs() / i64::from(poll_seconds.max(1));
    if missed < i64::from(LATE_AFTER) {
        Presence::Fresh
    } else if missed < i64::from(SILENT_AFTER) {
        Presence::Late
    } else {
        Presence::Silent
    }
}

/// Returns how many polls an agent of this presence has missed, as a lower bound (inclusive) and an upper
/// bound (exclusive); none if it was never seen.
#[must_use]
pub fn missed(presence: Presence) -> Option<(f64, f64)> {
    // Larger than any real number of missed polls. The bound for fresh agents is negative, because a clock
    // that is ahead may have recorded a time in the future.
    const EVER: f64 = 1e8;
    match presence {
        Presence::Never => None,
        Presence::Fresh => Some((-EVER, LATE_AFTER.into())),
        Presence::Late => Some((LATE_AFTER.into(), SILENT_AFTER.into())),
        Presence::Silent => Some((SILENT_AFTER.into(), EVER)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_depends_on_the_polling_interval() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let seen = |ago: i64| Some(Timestamp::from_second(1_000_000 - ago).unwrap());
        for (last_seen, poll_seconds, expected) in [
            (None, 30, Presence::Never),
            (seen(0), 30, Presence::Fresh),
            (seen(-60), 30, Presence::Fresh),
            (seen(89), 30, Presence::Fresh),
            (seen(90), 30, Presence::Late),
            (seen(299), 30, Presence::Late),
            (seen(300), 30, Presence::Silent),
            (seen(300), 300, Presence::Fresh),
            (seen(3000), 300, Presence::Silent),
        ] {
            assert_eq!(
                presence(last_seen, poll_seconds, now),
                expected,
                "{last_seen:?} every {poll_seconds}"
            );
        }
    }
}

//! The time for decisions: it follows the wall clock forward, and never goes back.
//!
//! Back-offs and deadlines are stored as times. With the wall clock, a step back by an hour would delay all of them by an
//! hour.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

static CLOCK: Mutex<Option<Clock>> = Mutex::new(None);

/// A time of the wall clock, and when it was read.
#[derive(Clone, Copy)]
struct Clock {
    wall: Timestamp,
    at: Instant,
}

/// Returns the current time; never earlier than a time that was returned before.
#[must_use]
pub fn now() -> Timestamp {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let read = Clock { wall: Timestamp::now(), at: Instant::now() };
    clock.get_or_insert(read).advance(read)
}

impl Clock {
    fn advance(&mut self, read: Self) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(read.at.duration_since(self.at)).unwrap_or(SignedDuration::MAX);
        let steady = self.wall.saturating_add(elapsed).unwrap_or(self.wall);
        *self = Self { wall: steady.max(read.wall), at: read.at };
        self.wall
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_step_back_of_the_wall_clock_delays_nothing_and_a_step_forward_is_followed() {
        let (start, at) = (Timestamp::now(), Instant::now());
        let mut clock = Clock { wall: start, at };
        let hour = SignedDuration::from_hours(1);
        let mut read = |seconds: u64, step: SignedDuration| {
            let wall = start + SignedDuration::from_secs(seconds.cast_signed()) + step;
            clock.advance(Clock { wall, at: at + Duration::from_secs(seconds) }) - start
        };
        assert_eq!(read(10, SignedDuration::ZERO).get_seconds(), 10);
        assert_eq!(read(20, -hour).get_seconds(), 20, "an hour back");
        assert_eq!(read(30, -hour).get_seconds(), 30, "still counts the seconds");
        assert_eq!(read(40, SignedDuration::ZERO).get_seconds(), 40, "corrected");
        assert_eq!(read(50, hour).get_seconds(), 3650, "an hour forward");
        assert_eq!(read(60, SignedDuration::ZERO).get_seconds(), 3660, "and back");
    }
}

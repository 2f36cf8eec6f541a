//! How many events a stack may have: a few at once, then one a minute. Agents report transitions only, so this matters for
//! fights with other controllers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brokkr_api::StackId;

const AT_ONCE: u32 = 10;
const EVERY: Duration = Duration::from_secs(60);

/// The events that each stack has left.
#[derive(Debug, Default)]
pub struct Limits(HashMap<StackId, Left>);

#[derive(Debug)]
struct Left {
    events: u32,
    since: Instant,
}

impl Limits {
    /// Returns whether the stack may have an event now, and counts it.
    pub fn allow(&mut self, stack: StackId, now: Instant) -> bool {
        // After so long, a stack has all events again, like one that is not known.
        self.0.retain(|_, left| now.duration_since(left.since) < EVERY * AT_ONCE);
        let left = self.0.entry(stack).or_insert(Left { events: AT_ONCE, since: now });
        let regained = now.duration_since(left.since).as_secs() / EVERY.as_secs();
        if regained > 0 {
            let regained = u32::try_from(regained).unwrap_or(u32::MAX);
            left.events = left.events.saturating_add(regained).min(AT_ONCE);
            left.since += EVERY * regained;
        }
        left.events.checked_sub(1).is_some_and(|rest| {
            left.events = rest;
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_reports_all_the_time_has_one_event_a_minute_and_delays_no_other() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let (noisy, quiet) = (StackId::generate(), StackId::generate());
        let allowed = (0..3600).filter(|second| limits.allow(noisy, start + Duration::from_secs(*second)));
        assert_eq!(allowed.count(), 10 + 59);
        assert!(limits.allow(quiet, start + Duration::from_secs(3600)));
    }

    #[test]
    fn after_a_pause_a_stack_has_all_of_its_events_again() {
        let (mut limits, start, stack) = (Limits::default(), Instant::now(), StackId::generate());
        for day in [0, 1] {
            let now = start + Duration::from_secs(day * 24 * 3600);
            assert_eq!((0..50).filter(|_| limits.allow(stack, now)).count(), 10, "on day {day}");
        }
    }
}

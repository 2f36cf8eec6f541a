//! How many events a stack may have: a few at once, then one a minute. Agents report transitions only, so this matters for
//! fights with other controllers.
//!
//! Until the broker has acknowledged them, reports come again with every record that is written: only those that are later than the
//! last one count.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brokkr_api::StackId;
use jiff::Timestamp;

const AT_ONCE: u32 = 10;
const EVERY: Duration = Duration::from_secs(60);

/// The events that each stack has left.
#[derive(Debug, Default)]
pub struct Limits(HashMap<StackId, Left>);

#[derive(Debug)]
struct Left {
    events: u32,
    since: Instant,
    /// The time of the last report.
    reported_at: Option<Timestamp>,
}

impl Limits {
    /// Returns whether the stack may have an event about its report of this time now, and counts it.
    pub fn allow(&mut self, stack: StackId, reported_at: Timestamp, now: Instant) -> bool {
        let left = self.0.entry(stack).or_insert(Left { events: AT_ONCE, since: now, reported_at: None });
        if left.reported_at.is_some_and(|last| reported_at <= last) {
            return false;
        }
        left.reported_at = Some(reported_at);
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
    use jiff::SignedDuration;

    use super::*;

    /// Returns a time after all that were returned before.
    fn later(time: &mut Timestamp) -> Timestamp {
        *time += SignedDuration::from_micros(1);
        *time
    }

    #[test]
    fn a_stack_that_reports_all_the_time_has_one_event_a_minute_and_delays_no_other() {
        let (mut limits, start, mut at) = (Limits::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let (noisy, quiet) = (StackId::generate(), StackId::generate());
        let allowed = (0..3600)
            .filter(|second| limits.allow(noisy, later(&mut at), start + Duration::from_secs(*second)));
        assert_eq!(allowed.count(), 10 + 59);
        assert!(limits.allow(quiet, later(&mut at), start + Duration::from_secs(3600)));
    }

    #[test]
    fn after_a_pause_a_stack_has_all_of_its_events_again() {
        let (mut limits, start, stack) = (Limits::default(), Instant::now(), StackId::generate());
        let mut at = Timestamp::UNIX_EPOCH;
        for day in [0, 1] {
            let now = start + Duration::from_secs(day * 24 * 3600);
            let allowed = (0..50).filter(|_| limits.allow(stack, later(&mut at), now));
            assert_eq!(allowed.count(), 10, "on day {day}");
        }
    }

    #[test]
    fn a_report_that_comes_again_while_the_broker_is_away_uses_up_no_event() {
        let (mut limits, now, stack) = (Limits::default(), Instant::now(), StackId::generate());
        let mut at = Timestamp::UNIX_EPOCH;
        let reports: Vec<Timestamp> = (0..10).map(|_| later(&mut at)).collect();
        for newest in 0..reports.len() {
            let allowed = reports[..=newest].iter().filter(|report| limits.allow(stack, **report, now));
            assert_eq!(allowed.copied().collect::<Vec<_>>(), [reports[newest]]);
        }
    }
}

//! Maintenance windows and freezes: when agents may begin a new version.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, Selector, WindowId};

/// A week: a longer window is always open.
const LONGEST_MINUTES: u32 = 7 * 24 * 60;
/// The days after a time until a window opens again: a week, and one because of time zones.
const DAYS_AHEAD: i64 = 8;

/// A maintenance window or a freeze: when the selected agents may begin a new version. Drift is repaired at any time, and
/// rollbacks do not wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    pub id: WindowId,
    pub name: Name,
    /// Only for stacks of this project; absent: for all stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The agents that it applies to.
    pub selector: Selector,
    pub rule: WindowRule,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Creates or replaces a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutWindow {
    /// Only for stacks of this project; absent: for all stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub selector: Selector,
    pub rule: WindowRule,
}

/// When agents may begin a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WindowRule {
    /// Only in these hours. If several windows select an agent, the first by name applies.
    Weekly(Weekly),
    /// Not between these times.
    Freeze(Freeze),
}

/// A window that opens on some days of each week.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Weekly {
    /// A name of the IANA time zone database, such as `Europe/Berlin`.
    pub timezone: String,
    /// The days on which it opens; empty: every day.
    #[serde(default)]
    pub days: Vec<Day>,
    /// The local time at which it opens. If the clock is set forward over that time, it opens at once; if the time occurs twice,
    /// at the first.
    #[schema(value_type = String, example = "22:00")]
    pub start: Time,
    /// How long it stays open, in elapsed time: at most 10080, a week.
    pub minutes: u32,
}

/// A time in which no new version begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    pub from: Timestamp,
    pub until: Timestamp,
    /// Shown where it holds a version back. Agents do not get it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Day {
    fn is(self, weekday: Weekday) -> bool {
        self as i8 == weekday.to_monday_zero_offset()
    }
}

impl PutWindow {
    /// Checks that the values make sense. Returns what does not.
    pub fn check(&self) -> Result<(), String> {
        match &self.rule {
            WindowRule::Weekly(weekly) => {
                if TimeZone::get(&weekly.timezone).is_err() {
                    return Err(format!("{:?} is not a time zone, such as Europe/Berlin", weekly.timezone));
                }
                if !(1..=LONGEST_MINUTES).contains(&weekly.minutes) {
                    return Err(format!("minutes must be between 1 and {LONGEST_MINUTES}"));
                }
                if weekly.days.len() > 7 {
                    return Err("days has more than seven entries".to_owned());
                }
            }
            WindowRule::Freeze(freeze) => {
                if freeze.until <= freeze.from {
                    return Err("until must be after from".to_owned());
                }
                if freeze.reason.len() > 1000 {
                    return Err("reason must be at most 1000 bytes".to_owned());
                }
            }
        }
        Ok(())
    }
}

/// When an agent may begin versions of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Only while this window is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Weekly>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<Freeze>,
}

/// Whether a version may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Since this time: the window opened, or a freeze ended.
    Open { since: Option<Timestamp> },
    /// Until this time, if it ever opens.
    Shut { until: Option<Timestamp> },
}

impl Schedule {
    /// Returns whether a version may begin at this time.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Opening {
        let window = self.window_at(now);
        match (self.frozen_until(now), window) {
            (None, Opening::Open { since }) => {
                let thawed = self.freezes.iter().map(|freeze| freeze.until).filter(|until| *until <= now);
                Opening::Open { since: since.max(thawed.max()) }
            }
            _ => Opening::Shut { until: self.next(now) },
        }
    }

    /// Returns the next time at which a version may begin.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let mut at = now;
        // Each freeze and each window moves the time forward, so that this ends; a freeze of years is not worth more.
        for _ in 0..1000 {
            at = match (self.frozen_until(at), self.window_at(at)) {
                (Some(thawed), _) => thawed,
                (None, Opening::Open { .. }) => return Some(at),
                (None, Opening::Shut { until }) => until?,
            };
        }
        None
    }

    fn frozen_until(&self, at: Timestamp) -> Option<Timestamp> {
        let here = self.freezes.iter().filter(|freeze| freeze.from <= at && at < freeze.until);
        here.map(|freeze| freeze.until).max()
    }

    fn window_at(&self, at: Timestamp) -> Opening {
        let Some(window) = &self.window else { return Opening::Open { since: None } };
        // An unknown zone opens nothing: what cannot be decided does not begin.
        let Ok(zone) = TimeZone::get(&window.timezone) else { return Opening::Shut { until: None } };
        let open_for = SignedDuration::from_mins(window.minutes.into());
        let mut since = None;
        for start in window.starts(&zone, at) {
            if start > at {
                let closed = Opening::Shut { until: Some(start) };
                return since.map_or(closed, |since| Opening::Open { since: Some(since) });
            }
            since = since.or((at.duration_since(start) < open_for).then_some(start));
        }
        since.map_or(Opening::Shut { until: None }, |since| Opening::Open { since: Some(since) })
    }
}

impl Weekly {
    /// Returns when the window opens in the days around a time, in ascending order: from the first that may still be open.
    fn starts(&self, zone: &TimeZone, around: Timestamp) -> impl Iterator<Item = Timestamp> {
        let today = around.to_zoned(zone.clone()).date();
        let longest = i64::from(self.minutes / (24 * 60)) + 1;
        let dates =
            (-longest..=DAYS_AHEAD).filter_map(move |days| today.checked_add(Span::new().days(days)).ok());
        let is_day = |date: &Date| self.days.is_empty() || self.days.iter().any(|day| day.is(date.weekday()));
        dates.filter(is_day).filter_map(|date| instant(zone, date.to_datetime(self.start)))
    }
}

/// Returns the instant of a local time: after a gap if it does not exist, the first if it occurs twice.
fn instant(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
        AmbiguousOffset::Gap { before, .. } => {
            // With the offset from before the gap, this is an instant after it.
            let after = before.to_timestamp(local).ok()? + SignedDuration::from_secs(1);
            zone.preceding(after).next().map(|transition| transition.timestamp())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn weekly(timezone: &str, days: &[Day], start: &str, minutes: u32) -> Schedule {
        let start = start.parse().expect("a local time");
        let window = Weekly { timezone: timezone.into(), days: days.to_vec(), start, minutes };
        Schedule { window: Some(window), freezes: Vec::new() }
    }

    fn open(since: &str) -> Opening {
        Opening::Open { since: Some(time(since)) }
    }

    fn shut(until: &str) -> Opening {
        Opening::Shut { until: Some(time(until)) }
    }

    #[test]
    fn h8_a_window_is_open_for_its_duration_on_its_days_across_midnight() {
        let nights = weekly("Europe/Berlin", &[Day::Fri, Day::Sat], "22:00", 360);
        // 2026-11-20 is a Friday; Berlin is one hour ahead of UTC.
        assert_eq!(nights.at(time("2026-11-20T20:59:59Z")), shut("2026-11-20T21:00:00Z"));
        assert_eq!(nights.at(time("2026-11-20T21:00:00Z")), open("2026-11-20T21:00:00Z"));
        assert_eq!(nights.at(time("2026-11-21T02:59:59Z")), open("2026-11-20T21:00:00Z"));
        assert_eq!(nights.at(time("2026-11-21T03:00:00Z")), shut("2026-11-21T21:00:00Z"));
        assert_eq!(nights.at(time("2026-11-22T03:00:00Z")), shut("2026-11-27T21:00:00Z"));
        let always = weekly("UTC", &[Day::Mon], "00:00", LONGEST_MINUTES);
        assert_eq!(always.at(time("2026-11-22T23:59:59Z")), open("2026-11-16T00:00:00Z"));
        let nowhere = weekly("Mars/Olympus", &[], "00:00", LONGEST_MINUTES);
        assert_eq!(nowhere.at(time("2026-11-22T23:59:59Z")), Opening::Shut { until: None });
    }

    #[test]
    fn h8_where_the_clock_is_set_forward_a_window_opens_after_the_gap() {
        // On 2026-03-29 at 01:00Z, the clocks of Berlin go from 02:00 to 03:00.
        for start in ["02:00", "02:30", "02:59:59"] {
            let gap = weekly("Europe/Berlin", &[Day::Sun], start, 60);
            assert_eq!(gap.at(time("2026-03-29T00:59:59Z")), shut("2026-03-29T01:00:00Z"), "{start}");
            assert_eq!(gap.at(time("2026-03-29T01:00:00Z")), open("2026-03-29T01:00:00Z"), "{start}");
            assert_eq!(gap.at(time("2026-03-29T01:59:59Z")), open("2026-03-29T01:00:00Z"), "{start}");
            assert!(matches!(gap.at(time("2026-03-29T02:00:00Z")), Opening::Shut { .. }), "{start}");
        }
        // Apia left out the whole of 2011-12-30.
        let apia = weekly("Pacific/Apia", &[Day::Fri], "12:00", 60);
        assert_eq!(apia.at(time("2011-12-30T09:59:59Z")), shut("2011-12-30T10:00:00Z"));
        assert_eq!(apia.at(time("2011-12-30T10:30:00Z")), open("2011-12-30T10:00:00Z"));
    }

    #[test]
    fn h8_where_the_clock_is_set_back_a_window_opens_at_the_first_of_two_times_and_lasts_for_elapsed_time() {
        // On 2026-10-25 at 01:00Z, the clocks of Berlin go from 03:00 back to 02:00.
        let fold = weekly("Europe/Berlin", &[Day::Sun], "02:30", 120);
        assert_eq!(fold.at(time("2026-10-25T00:29:59Z")), shut("2026-10-25T00:30:00Z"));
        assert_eq!(fold.at(time("2026-10-25T01:30:00Z")), open("2026-10-25T00:30:00Z"), "the second 02:30");
        assert_eq!(fold.at(time("2026-10-25T02:29:59Z")), open("2026-10-25T00:30:00Z"));
        assert_eq!(fold.at(time("2026-10-25T02:30:00Z")), shut("2026-11-01T01:30:00Z"));
    }

    #[test]
    fn h8_in_a_freeze_nothing_begins_and_afterwards_only_in_the_window() {
        let freeze = |from, until| Freeze { from: time(from), until: time(until), reason: String::new() };
        let mut schedule = Schedule {
            window: None,
            freezes: vec![
                freeze("2026-12-20T00:00:00Z", "2027-01-02T00:00:00Z"),
                freeze("2027-01-01T00:00:00Z", "2027-01-03T00:00:00Z"),
            ],
        };
        assert_eq!(schedule.at(time("2026-12-19T23:59:59Z")), Opening::Open { since: None });
        assert_eq!(schedule.at(time("2026-12-20T00:00:00Z")), shut("2027-01-03T00:00:00Z"));
        assert_eq!(schedule.at(time("2027-01-03T00:00:00Z")), open("2027-01-03T00:00:00Z"));
        schedule.window = weekly("UTC", &[Day::Wed], "08:00", 60).window;
        assert_eq!(schedule.at(time("2026-12-20T00:00:00Z")), shut("2027-01-06T08:00:00Z"));
        assert_eq!(schedule.at(time("2027-01-06T08:10:00Z")), open("2027-01-06T08:00:00Z"));
    }
}

//! The broker's clock, read from its responses, because the broker checks assertions by it.

use std::sync::atomic::{AtomicI64, Ordering};

use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};

/// Differences up to this are ignored, because `Date` has whole seconds and responses take time.
const TOLERANCE_SECONDS: i64 = 2;

/// The offset of the broker's clock.
#[derive(Debug, Default)]
pub struct Clock {
    offset_seconds: AtomicI64,
}

impl Clock {
    /// Reads the time of a response; returns whether the offset changed.
    pub(crate) fn learn(&self, headers: &HeaderMap) -> bool {
        // A response from a cache has the date of its creation.
        if headers.contains_key(header::AGE) {
            return false;
        }
        let Some(date) = headers.get(header::DATE).and_then(|date| date.to_str().ok()) else { return false };
        let Ok(date) = jiff::fmt::rfc2822::parse(date) else { return false };
        let measured = date.timestamp().as_second() - local_seconds();
        let known = self.offset_seconds.load(Ordering::Relaxed);
        if (measured - known).abs() <= TOLERANCE_SECONDS {
            return false;
        }
        let offset = if measured.abs() <= TOLERANCE_SECONDS { 0 } else { measured };
        self.offset_seconds.swap(offset, Ordering::Relaxed) != offset
    }

    pub(crate) fn offset(&self) -> SignedDuration {
        SignedDuration::from_secs(self.offset_seconds.load(Ordering::Relaxed))
    }

    /// Returns the broker's time in seconds since 1970.
    pub(crate) fn broker_seconds(&self) -> i64 {
        local_seconds() + self.offset_seconds.load(Ordering::Relaxed)
    }
}

fn local_seconds() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds_from_now: i64) -> HeaderMap {
        let time = Timestamp::from_second(local_seconds() + seconds_from_now).unwrap();
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap();
        HeaderMap::from_iter([(header::DATE, date.parse().unwrap())])
    }

    #[test]
    fn an_offset_of_a_second_is_ignored_and_one_of_an_hour_is_not() {
        let clock = Clock::default();
        assert!(!clock.learn(&at(1)));
        assert_eq!(clock.offset().as_secs(), 0);
        assert!(clock.learn(&at(-3600)));
        assert!((clock.offset().as_secs() + 3600).abs() <= 1);
        assert!(!clock.learn(&at(-3600)), "the same offset is no change");
        assert!(clock.learn(&at(0)), "the offset returns to zero");
        assert_eq!(clock.offset().as_secs(), 0);
    }

    #[test]
    fn the_date_of_a_cached_response_is_ignored() {
        let clock = Clock::default();
        let mut headers = at(-3600);
        headers.insert(header::AGE, "3600".parse().unwrap());
        assert!(!clock.learn(&headers));
    }
}

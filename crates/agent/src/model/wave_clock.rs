//! For how long a delivery has waited for a wave.
//!
//! Only time in which this agent has run counts, in small steps, so that a clock that is set, or an outage of the agent, uses up no
//! wave's time. What was counted is recorded a few times, so that a restart does not begin again.

use brokkr_api::SequenceId;
use brokkr_api::reason::Wave;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The agent counts at least this often while it waits.
pub const COUNTS: SignedDuration = SignedDuration::from_secs(30);
/// The most that counts at once: a longer step is a clock that was set, or a process that was stopped.
const LONGEST_STEP: SignedDuration = SignedDuration::from_secs(90);
/// What was counted is recorded in so many steps.
const RECORDED_IN: i32 = 4;

/// What the record says about the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedWait {
    pub sequence: SequenceId,
    pub wave: Wave,
    pub seconds: u32,
}

#[derive(Clone, Debug, Default)]
pub struct WaveClock {
    of: Option<(SequenceId, Wave)>,
    waited: SignedDuration,
    counted_at: Option<Timestamp>,
}

impl WaveClock {
    /// Returns the clock of the last run.
    #[must_use]
    pub fn restored(recorded: Option<&RecordedWait>) -> Self {
        recorded.map_or_else(Self::default, |recorded| Self {
            of: Some((recorded.sequence, recorded.wave)),
            waited: SignedDuration::from_secs(recorded.seconds.into()),
            counted_at: None,
        })
    }

    /// Counts the time since the last call, if it runs.
    pub fn count(&mut self, now: Timestamp) {
        if let Some(since) = self.counted_at.replace(now) {
            self.waited += now.duration_since(since).clamp(SignedDuration::ZERO, LONGEST_STEP);
        } else {
            self.counted_at = None;
        }
    }

    /// Runs while the delivery waits for a wave; begins again for another wave.
    pub fn set(&mut self, of: Option<(SequenceId, Wave)>, now: Timestamp) {
        match of {
            None => self.counted_at = None,
            Some(_) if self.of == of => {
                self.counted_at.get_or_insert(now);
            }
            Some(_) => {
                *self = Self { of, waited: SignedDuration::ZERO, counted_at: Some(now) };
            }
        }
    }

    /// Returns for how long this wave was waited for.
    #[must_use]
    pub fn waited(&self, sequence: SequenceId, wave: Wave) -> SignedDuration {
        if self.of == Some((sequence, wave)) { self.waited } else { SignedDuration::ZERO }
    }

    #[must_use]
    pub fn to_record(&self) -> Option<RecordedWait> {
        let (sequence, wave) = self.of?;
        let seconds = u32::try_from(self.waited.as_secs()).unwrap_or(u32::MAX);
        Some(RecordedWait { sequence, wave, seconds })
    }

    /// Returns whether so much more was counted than recorded that the record should say so.
    #[must_use]
    pub fn is_outdated(&self, recorded: Option<&RecordedWait>, limit: SignedDuration) -> bool {
        let same = recorded.filter(|recorded| self.of == Some((recorded.sequence, recorded.wave)));
        let recorded = SignedDuration::from_secs(same.map_or(0, |recorded| recorded.seconds.into()));
        self.waited - recorded >= (limit / RECORDED_IN).max(SignedDuration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Option<(SequenceId, Wave)> = Some((SequenceId(7), Wave::Number(0)));

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn waited(clock: &WaveClock) -> i64 {
        clock.waited(SequenceId(7), Wave::Number(0)).as_secs()
    }

    #[test]
    fn j5_only_time_in_which_the_agent_ran_and_waited_counts() {
        let mut clock = WaveClock::default();
        clock.count(second(0));
        clock.set(FIRST, second(10));
        clock.count(second(30));
        assert_eq!(waited(&clock), 20);
        clock.count(second(86_400));
        assert_eq!(waited(&clock), 110, "a clock that was set forward");
        clock.count(second(0));
        assert_eq!(waited(&clock), 110, "and back");
        clock.set(None, second(5));
        clock.count(second(60));
        clock.set(FIRST, second(60));
        clock.count(second(70));
        assert_eq!(waited(&clock), 120, "it did not wait meanwhile");
        clock.set(Some((SequenceId(7), Wave::Number(1))), second(80));
        assert_eq!(waited(&clock), 0);
    }

    #[test]
    fn j5_a_restart_goes_on_with_what_was_recorded() {
        let mut clock = WaveClock::default();
        clock.set(FIRST, second(0));
        assert!(!clock.is_outdated(None, SignedDuration::from_secs(300)));
        clock.count(second(80));
        assert!(clock.is_outdated(None, SignedDuration::from_secs(300)));
        let recorded = clock.to_record();
        assert!(!clock.is_outdated(recorded.as_ref(), SignedDuration::from_secs(300)));
        let mut next = WaveClock::restored(recorded.as_ref());
        next.count(second(1000));
        next.set(FIRST, second(1000));
        next.count(second(1010));
        assert_eq!(waited(&next), 90);
    }
}

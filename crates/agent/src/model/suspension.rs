//! Suspensions: what the agent leaves alone, and for how much longer.
//!
//! A suspension ends when the broker no longer names it, or after its time. Only time that the agent has watched counts, in small
//! steps: a clock that is set forward ends nothing early, and while the agent is down, no time passes. An end that comes too late can
//! be forced at any time; one that comes too early destroys what people are working on.

use std::collections::BTreeSet;

use brokkr_api::SuspensionId;
use brokkr_api::suspensions::{ObjectName, Suspended};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The agent counts at least this often while a suspension lasts.
const COUNTS: SignedDuration = SignedDuration::from_secs(30);
/// The most that counts at once: a longer step is a clock that was set, or a process that was stopped.
const LONGEST_STEP: SignedDuration = SignedDuration::from_secs(90);

/// What is left of its time is recorded each time that it is so much less: a restart prolongs a suspension by no more.
const RECORDED_EVERY: u32 = 600;

/// A suspension in the record of its stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedSuspension {
    pub id: SuspensionId,
    /// Only this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectName>,
    pub since: Timestamp,
    /// What was left of its time when the record was written.
    pub left_seconds: u32,
}

impl RecordedSuspension {
    /// Returns the suspension as the broker would name it.
    #[must_use]
    pub fn named(&self) -> Suspended {
        Suspended { id: self.id, object: self.object.clone(), seconds: self.left_seconds }
    }
}

/// What was found about an object at the end of its suspension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundEdits {
    /// It does not exist.
    Gone,
    /// It is not readable, or the changes are too large.
    Unknown,
    /// What others have changed; an empty object if they have changed nothing.
    Patch(Value),
}

/// A suspension that is in force, or over but not closed.
#[derive(Clone, Debug)]
pub struct ActiveSuspension {
    pub id: SuspensionId,
    pub object: Option<ObjectName>,
    pub since: Timestamp,
    left: SignedDuration,
    /// What others changed is still to be reported. Until then, it is left alone.
    pub is_over: bool,
}

/// The suspensions of one stack on this agent.
#[derive(Clone, Debug, Default)]
pub struct Suspensions {
    list: Vec<ActiveSuspension>,
    /// Ended here, although the broker still names them.
    ended: BTreeSet<SuspensionId>,
    counted_at: Option<Timestamp>,
}

impl Suspensions {
    /// Returns the suspensions of the last run.
    #[must_use]
    pub fn restored(recorded: &[RecordedSuspension]) -> Self {
        let list = recorded.iter().map(|recorded| ActiveSuspension {
            id: recorded.id,
            object: recorded.object.clone(),
            since: recorded.since,
            left: SignedDuration::from_secs(recorded.left_seconds.into()),
            is_over: false,
        });
        Self { list: list.collect(), ..Self::default() }
    }

    /// Adopts what the broker names. Returns whether anything has changed.
    pub fn set(&mut self, named: &[Suspended], now: Timestamp) -> bool {
        // Time before a suspension begins does not count for it.
        let mut changed = self.count(now);
        for suspension in &mut self.list {
            if !named.iter().any(|named| named.id == suspension.id) {
                changed |= !suspension.is_over;
                suspension.is_over = true;
            }
        }
        self.ended.retain(|id| named.iter().any(|named| named.id == *id));
        for named in named {
            let is_known =
                self.list.iter().any(|known| known.id == named.id) || self.ended.contains(&named.id);
            if is_known {
                continue;
            }
            changed = true;
            self.list.push(ActiveSuspension {
                id: named.id,
                object: named.object.clone(),
                since: now,
                left: SignedDuration::from_secs(named.seconds.into()),
                is_over: false,
            });
        }
        changed
    }

    /// Counts the time since the last call. Returns whether a suspension has ended.
    pub fn count(&mut self, now: Timestamp) -> bool {
        let since = self.counted_at.replace(now).unwrap_or(now);
        let step = now.duration_since(since).clamp(SignedDuration::ZERO, LONGEST_STEP);
        let mut ended = false;
        for suspension in self.list.iter_mut().filter(|suspension| !suspension.is_over) {
            suspension.left = suspension.left.saturating_sub(step);
            if suspension.left <= SignedDuration::ZERO {
                suspension.is_over = true;
                self.ended.insert(suspension.id);
                ended = true;
            }
        }
        ended
    }

    /// Forgets what is over and not in the record (any more): there is nothing to report about it.
    pub fn forget_closed(&mut self, recorded: &[RecordedSuspension]) {
        self.list.retain(|known| !known.is_over || recorded.iter().any(|recorded| recorded.id == known.id));
    }

    /// Returns when to count again.
    #[must_use]
    pub fn next_count(&self, now: Timestamp) -> Option<Timestamp> {
        let left = self.list.iter().filter(|suspension| !suspension.is_over).map(|one| one.left);
        left.min().map(|left| now + left.min(COUNTS))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ActiveSuspension> {
        self.list.iter()
    }

    /// Returns whether the whole stack is left alone.
    #[must_use]
    pub fn cover_stack(&self) -> bool {
        self.list.iter().any(|suspension| suspension.object.is_none())
    }

    /// Returns whether this object is left alone.
    #[must_use]
    pub fn cover(&self, key: &Key) -> bool {
        self.list.iter().any(|suspension| suspension.covers(key))
    }

    /// Notes what is left of the time of recorded suspensions.
    pub fn refresh(&self, recorded: &mut [RecordedSuspension]) {
        for (recorded, active) in recorded.iter_mut().filter_map(|recorded| {
            self.list.iter().find(|one| one.id == recorded.id).map(|one| (recorded, one))
        }) {
            recorded.left_seconds = active.left_seconds();
        }
    }

    /// Returns whether so much less time is left than recorded that the record should say so.
    #[must_use]
    pub fn are_outdated(&self, recorded: &[RecordedSuspension]) -> bool {
        let active = self.list.iter().filter(|suspension| !suspension.is_over);
        active.filter_map(|active| Some((active, recorded.iter().find(|one| one.id == active.id)?))).any(
            |(active, recorded)| recorded.left_seconds.saturating_sub(active.left_seconds()) > RECORDED_EVERY,
        )
    }

    /// Returns what the record has to say while they last.
    #[must_use]
    pub fn to_record(&self) -> Vec<RecordedSuspension> {
        let active = self.list.iter().filter(|suspension| !suspension.is_over);
        active
            .map(|suspension| RecordedSuspension {
                id: suspension.id,
                object: suspension.object.clone(),
                since: suspension.since,
                left_seconds: suspension.left_seconds(),
            })
            .collect()
    }
}

impl ActiveSuspension {
    fn left_seconds(&self) -> u32 {
        u32::try_from(self.left.as_secs().max(1)).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        let object = self.object.as_ref();
        object.is_none_or(|object| object.matches(&key.kind, key.namespace.as_deref(), &key.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn named(id: SuspensionId, seconds: u32) -> Suspended {
        Suspended { id, object: None, seconds }
    }

    /// Counts once a second, as the agent does at least every 30 s.
    fn watch(suspensions: &mut Suspensions, seconds: std::ops::Range<i64>) -> Option<i64> {
        seconds.into_iter().find(|at| suspensions.count(second(*at)))
    }

    #[test]
    fn f2_a_suspension_ends_after_its_time_and_does_not_begin_again_while_it_is_named() {
        let id = SuspensionId::generate();
        let mut suspensions = Suspensions::default();
        assert!(suspensions.set(&[named(id, 60)], second(0)));
        assert!(!suspensions.set(&[named(id, 60)], second(1)), "it is known");
        assert_eq!(watch(&mut suspensions, 1..100), Some(60));
        assert!(suspensions.cover_stack(), "until it is reported what others changed");
        suspensions.forget_closed(&[]);
        assert!(suspensions.is_empty());
        assert!(!suspensions.set(&[named(id, 60)], second(61)));
        assert!(suspensions.is_empty(), "it has ended here");
        suspensions.set(&[], second(62));
        assert!(suspensions.set(&[named(id, 60)], second(63)), "the broker names it again");
    }

    #[test]
    fn f2_time_before_a_suspension_does_not_count_for_it() {
        let mut suspensions = Suspensions::default();
        suspensions.count(second(0));
        suspensions.set(&[named(SuspensionId::generate(), 60)], second(300));
        assert_eq!(watch(&mut suspensions, 300..500), Some(360));
    }

    #[test]
    fn f2_a_step_of_the_clock_neither_ends_a_suspension_early_nor_prolongs_it() {
        let mut suspensions = Suspensions::default();
        suspensions.set(&[named(SuspensionId::generate(), 3600)], second(0));
        suspensions.count(second(0));
        assert!(!suspensions.count(second(86_400)), "a day forward");
        assert!(!suspensions.count(second(10)), "and back");
        let end = watch(&mut suspensions, 10..4000).expect("an end");
        assert!((3600 - 90..=3610).contains(&end), "{end}");
    }

    #[test]
    fn f2_after_a_restart_the_rest_of_the_time_counts() {
        let id = SuspensionId::generate();
        let mut before = Suspensions::default();
        before.set(&[named(id, 100)], second(0));
        assert_eq!(watch(&mut before, 0..60), None);
        let recorded = before.to_record();
        assert_eq!(recorded[0].left_seconds, 41);
        let mut after = Suspensions::restored(&recorded);
        assert!(after.cover_stack());
        assert!(!after.set(&[named(id, 100)], second(5000)));
        assert_eq!(watch(&mut after, 5000..6000), Some(5041));
        let mut resumed = Suspensions::restored(&recorded);
        assert!(resumed.set(&[], second(5000)), "the broker has ended it meanwhile");
        assert!(resumed.iter().all(|suspension| suspension.is_over));
    }
}

//! The target of a stack: how a newer one is adopted, and where it comes from without the broker.

use brokkr_api::envelope::{Removal, TargetStack};
use brokkr_api::ids::Checksum;
use brokkr_api::windows::Opening;
use jiff::Timestamp;

use super::StackState;
use crate::model::{Goal, Record, RecordedSuspension, Suspensions, WaveClock};

impl StackState {
    /// Sets the target that the broker names.
    pub fn set_target(&mut self, named: TargetStack, now: Timestamp) {
        let pursued = self.pursued(&named, now);
        let differs = self.goal.as_ref().is_some_and(|goal| {
            pursued.as_ref().is_none_or(|target| {
                goal.target.sequence_id != target.sequence_id
                    || goal.target.removal != target.removal
                    // Nothing that is planned may be sent under another grant.
                    || goal.target.grant != target.grant
            })
        });
        let is_other = self.suspensions.set(&named.suspensions, now);
        if differs || is_other {
            self.drop_queue();
        }
        if is_other {
            self.planned_at = None;
        }
        self.next = Some(named);
        self.adopt_next_target(now);
    }

    /// Returns the target to pursue when the broker names this one; none if there is nothing to do.
    ///
    /// An agent never goes back. If the broker names an older version than it has begun, because that one was withdrawn or the
    /// broker's database was restored, it keeps what it has, under the grant that the broker names.
    fn pursued(&self, named: &TargetStack, now: Timestamp) -> Option<TargetStack> {
        let recorded = self.recorded_target().filter(|_| self.record.as_ref().is_some_and(is_begun));
        let recorded = recorded.map(|recorded| match recorded.removal {
            // Targeted again. The removal went with the newest version, which the agent need not have begun.
            Some(Removal::Untargeted) if named.removal.is_none() => {
                let begun = self.record.as_ref().map_or(recorded.sequence_id, |record| record.stamp);
                TargetStack { sequence_id: begun, removal: None, ..recorded }
            }
            _ => recorded,
        });
        let begun = recorded.as_ref().map(|recorded| (recorded.sequence_id, recorded.removal));
        let is_behind = begun.is_some_and(|(begun, _)| named.sequence_id < begun);
        let is_withdrawn = named.withdrawn && begun.is_none_or(|(begun, _)| begun != named.sequence_id);
        if is_behind || is_withdrawn || self.is_shut(named, now) {
            let current = self.goal.as_ref().map(|goal| &goal.target);
            let current =
                current.filter(|target| Some((target.sequence_id, target.removal)) == begun).cloned();
            let (grant, suspensions) = (named.grant.clone(), named.suspensions.clone());
            return Some(TargetStack { grant, suspensions, drift: named.drift, ..current.or(recorded)? });
        }
        Some(TargetStack { withdrawn: false, ..named.clone() })
    }

    /// H8: returns whether this target is not begun, and must not begin now: outside of its window, or because the stack is suspended.
    fn is_shut(&self, target: &TargetStack, now: Timestamp) -> bool {
        let schedule = target.schedule.as_ref();
        let is_closed = schedule.is_some_and(|schedule| matches!(schedule.at(now), Opening::Shut { .. }));
        if !is_closed && !self.suspensions.cover_stack() {
            return false;
        }
        let is_this = |record: &&Record| {
            record.sequence == target.sequence_id && record.removal.is_some() == target.removal.is_some()
        };
        let is_begun = self.record.as_ref().filter(is_this).is_some_and(is_begun);
        !is_begun
    }

    /// Counts the time of suspensions. Begins the target that waited for its window or for the end of a suspension, when it may; holds
    /// back a target that was adopted, but not begun, before that. The caller updates the claims of the stack if it adopts another target then.
    pub fn check_window(&mut self, now: Timestamp) {
        if self.suspensions.count(now) {
            self.planned_at = None;
        }
        // A record that names a suspension may just be written.
        if self.is_idle() {
            let recorded =
                self.record.as_ref().map(|record| record.suspensions.as_slice()).unwrap_or_default();
            self.suspensions.forget_closed(recorded);
        }
        if self.shut.as_ref().is_some_and(|target| !self.is_shut(target, now)) {
            let opened = self.shut.take();
            self.next = self.next.take().or(opened);
        }
        let goal = self.goal.as_ref().map(|goal| &goal.target);
        if let Some(target) = goal.filter(|target| self.next.is_none() && self.is_shut(target, now)).cloned()
        {
            self.drop_queue();
            self.next = Some(target);
        }
    }

    /// Wakes the stack when the window of the target that waits for it opens, and when the time of its suspensions has to be counted.
    pub fn wake_for_window(&mut self, now: Timestamp) {
        let schedule = self.shut.as_ref().and_then(|target| target.schedule.as_ref());
        if let Some(Opening::Shut { until: Some(until) }) = schedule.map(|schedule| schedule.at(now)) {
            self.wake_at = Some(self.wake_at.map_or(until, |at| at.min(until)));
        }
        if let Some(count) = self.suspensions.next_count(now) {
            self.wake_at = Some(self.wake_at.map_or(count, |at| at.min(count)));
        }
    }

    /// The broker does not name the stack. It is not deleted (E4): a removal goes on, and what was begun is kept. What was not begun
    /// was withdrawn.
    pub fn set_no_target(&mut self, now: Timestamp) {
        self.shut = None;
        let goal = self.goal.as_ref().map(|goal| &goal.target).filter(|target| target.removal.is_none());
        if let Some(target) = self.next.as_ref().or(goal) {
            self.set_target(TargetStack { withdrawn: true, ..target.clone() }, now);
        } else if self.record.as_ref().is_some_and(|record| record.removal.is_some()) {
            self.set_target_from_record(now);
        }
    }

    /// Drops the planned steps of an older target or grant.
    fn drop_queue(&mut self) {
        for step in self.queue.drain(..) {
            if let Some(key) = step.key() {
                self.busy.remove(key);
            }
        }
    }

    /// Starts over with a record of an earlier run.
    pub(super) fn resume_with_found_record(&mut self, now: Timestamp) {
        tracing::info!("found a newer record of an earlier run; adopting it");
        self.drop_queue();
        self.forget_progress();
        self.retries.retry_now();
        self.stage = None;
        let recorded = self.record.as_ref().map(|record| record.suspensions.as_slice()).unwrap_or_default();
        self.suspensions = Suspensions::restored(recorded);
        let wait = self.record.as_ref().and_then(|record| record.wait.as_ref());
        self.wave_clock = WaveClock::restored(wait);
        let target = self.goal.take().map(|goal| goal.target);
        match self.next.take().or(self.shut.take()).or(target) {
            Some(target) => self.set_target(target, now),
            None => self.set_target_from_record(now),
        }
    }

    /// A9: without the broker, the record is the target.
    pub fn set_target_from_record(&mut self, now: Timestamp) {
        if let Some(target) = self.recorded_target().filter(|_| self.goal.is_none()) {
            self.set_target(target, now);
        }
    }

    /// Returns the target that the record describes.
    fn recorded_target(&self) -> Option<TargetStack> {
        let record = self.record.as_ref()?;
        let at = record.hops.published.unwrap_or(Timestamp::UNIX_EPOCH);
        Some(TargetStack {
            project: record.project.clone(),
            stack_id: record.stack,
            stack_name: record.stack_name.clone(),
            sequence_id: record.sequence,
            checksum: record.checksum.unwrap_or_else(|| Checksum::of(b"")),
            // Not used: the cached content has its own digest.
            parsed_digest: Checksum::of(b""),
            removal: record.removal,
            withdrawn: false,
            wave_wait_seconds: record.wave_wait_seconds,
            rerun: Vec::new(),
            schedule: None,
            suspensions: record.suspensions.iter().map(RecordedSuspension::named).collect(),
            // They are stored for the stack, and not read from its target.
            health_rules: None,
            drift: record.drift,
            grant: record.grant.clone(),
            approvals: Vec::new(),
            published_at: at,
            targeted_at: record.hops.targeted.unwrap_or(at),
            released_at: record.hops.released.unwrap_or(at),
        })
    }

    pub(super) fn adopt_next_target(&mut self, now: Timestamp) {
        if self.in_flight > 0 {
            return;
        }
        let Some(named) = self.next.take() else { return };
        // Only now, because the record may have changed while the target waited.
        let pursued = self.pursued(&named, now);
        self.shut = self.is_shut(&named, now).then(|| named.clone());
        let Some(target) = pursued else {
            if self.goal.take().is_some() {
                tracing::info!(
                    stack.id = %named.stack_id, version = %named.sequence_id,
                    "a version was withdrawn, or its window is closed; not beginning it"
                );
                self.restart_cycle();
            }
            return;
        };
        if target.sequence_id > named.sequence_id {
            tracing::info!(
                stack.id = %named.stack_id, named = %named.sequence_id, kept = %target.sequence_id,
                "the broker names an older version; keeping the one that was begun"
            );
        }
        let same = self.goal.as_ref().is_some_and(|goal| {
            goal.target.sequence_id == target.sequence_id && goal.target.removal == target.removal
        });
        if same {
            if let Some(goal) = &mut self.goal {
                // A changed grant or approval counts at once.
                if goal.target != target {
                    self.planned_at = None;
                }
                goal.target = target;
            }
            return;
        }
        let applied = self.record.as_ref().and_then(|record| record.applied);
        let (content, fallback) = match self.goal.take() {
            // The content stays if only the removal was withdrawn.
            Some(goal)
                if goal.content.as_ref().is_some_and(|content| content.sequence == target.sequence_id) =>
            {
                (goal.content, goal.fallback)
            }
            // What was not begun was withdrawn.
            Some(Goal { fallback: Some(content), .. }) if content.sequence == target.sequence_id => {
                (Some(content), None)
            }
            Some(goal) => {
                // The content that was applied last: this one, or the previous one if this one was never
                // applied.
                let fallback = match goal.content {
                    Some(content) if Some(content.sequence) == applied => Some(content),
                    _ => goal.fallback,
                };
                (None, fallback)
            }
            None => (None, None),
        };
        self.goal = Some(Goal { target, content, fallback });
        self.restart_cycle();
    }

    fn restart_cycle(&mut self) {
        self.forget_progress();
        self.retries.retry_now();
        self.wake_at = None;
        self.stage = None;
    }
}

/// Returns whether the agent has begun the version of the record. One that only reports why the version cannot be applied has begun
/// nothing.
fn is_begun(record: &Record) -> bool {
    record.checksum.is_some() || record.removal.is_some()
}

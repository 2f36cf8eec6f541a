//! The target of a stack: how a newer one is adopted, and where it comes from without the broker.

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use jiff::Timestamp;

use super::StackState;
use crate::model::Goal;

impl StackState {
    /// Sets the target. One that is older than the record is refused.
    pub fn set_target(&mut self, target: TargetStack) {
        let highest = self.record.as_ref().map(|record| record.sequence);
        let older = highest.is_some_and(|highest| target.sequence_id < highest);
        if older {
            tracing::warn!(
                stack.id = %target.stack_id, sequence = %target.sequence_id, recorded = ?highest,
                "refused a deployment object that is older than the recorded one"
            );
            // Without another target, the recorded state is kept and repaired.
            self.set_target_from_record();
            return;
        }
        let newer = self.goal.as_ref().is_some_and(|goal| {
            goal.target.sequence_id != target.sequence_id
                || goal.target.removal != target.removal
                // Nothing that is planned may be sent under another grant.
                || goal.target.grant != target.grant
        });
        if newer {
            self.drop_queue();
        }
        self.next = Some(target);
        self.adopt_next_target();
    }

    /// Drops the planned steps of an older target or grant.
    fn drop_queue(&mut self) {
        for step in self.queue.drain(..) {
            if let Some(key) = step.key() {
                self.busy.remove(key);
            }
        }
    }

    /// Continues a stored removal, even if the broker no longer mentions the stack.
    pub fn continue_removal(&mut self) {
        if self.record.as_ref().is_some_and(|record| record.removal.is_some()) {
            self.set_target_from_record();
        }
    }

    /// Starts over with a record of an earlier run. A target that is older than that is refused.
    pub(super) fn resume_with_found_record(&mut self) {
        tracing::info!("found a newer record of an earlier run; adopting it");
        self.drop_queue();
        self.forget_progress();
        self.retries.retry_now();
        self.stage = None;
        let target = self.goal.take().map(|goal| goal.target);
        match self.next.take().or(target) {
            Some(target) => self.set_target(target),
            None => self.set_target_from_record(),
        }
    }

    /// A9: without the broker, the record is the target.
    pub fn set_target_from_record(&mut self) {
        let Some(record) = self.record.as_ref().filter(|_| self.goal.is_none()) else { return };
        let at = record.hops.published.unwrap_or(Timestamp::UNIX_EPOCH);
        self.set_target(TargetStack {
            project: record.project.clone(),
            stack_id: record.stack,
            stack_name: record.stack_name.clone(),
            sequence_id: record.sequence,
            checksum: record.checksum.unwrap_or_else(|| Checksum::of(b"")),
            // Not used: the cached content has its own digest.
            parsed_digest: Checksum::of(b""),
            removal: record.removal,
            grant: record.grant.clone(),
            approvals: Vec::new(),
            published_at: at,
            targeted_at: record.hops.targeted.unwrap_or(at),
            released_at: record.hops.released.unwrap_or(at),
        });
    }

    pub(super) fn adopt_next_target(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        let Some(target) = self.next.take() else { return };
        // Checked again, because the record may have changed while the target waited.
        let older = self.record.as_ref().is_some_and(|record| target.sequence_id < record.sequence);
        if older {
            return;
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
        self.forget_progress();
        self.retries.retry_now();
        self.wake_at = None;
        self.stage = None;
    }
}

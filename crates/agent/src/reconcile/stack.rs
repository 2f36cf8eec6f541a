//! The state of one stack in this process: its goal, its record, and what is under way.

use std::collections::{HashMap, HashSet};

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::{Checksum, StackId};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::Worker;
use crate::execute::request::STOOD_DOWN;
use crate::observe::Index;
use crate::plan::absorb::absorb;
use crate::plan::steps::{Answer, Plan, Stage, Step};
use crate::plan::types::{Goal, Progress, Record, Situation};
use crate::plan::{backoff, plan, steady};

/// What a stack sees of the rest of the agent.
pub struct Surroundings<'a> {
    pub worker: &'a Worker,
    pub index: &'a Index,
    /// Stacks that are being removed.
    pub leaving: &'a HashSet<StackId>,
    /// Which stack a resource belongs to.
    pub claims: &'a HashMap<Key, StackId>,
}

#[derive(Default)]
pub struct StackState {
    pub goal: Option<Goal>,
    /// A newer goal, taken up as soon as nothing is in flight.
    pub next: Option<TargetStack>,
    pub record: Option<Record>,
    pub progress: Progress,
    /// Resources with a request under way.
    busy: HashSet<Key>,
    in_flight: usize,
    stage: Option<Stage>,
    /// Resources whose picture changed since the last plan.
    pub touched: HashSet<Key>,
    pub wake_at: Option<Timestamp>,
    /// After a failure that is about no resource: how often, and when to try again.
    setback: Option<(u32, Timestamp)>,
}

impl StackState {
    #[must_use]
    pub fn resumed(record: Record) -> Self {
        Self { record: Some(record), ..Self::default() }
    }

    /// Takes a target; an older one than what the record holds is refused, whatever we are told.
    pub fn aim(&mut self, target: TargetStack) {
        let highest = self.record.as_ref().map(|record| record.sequence);
        if highest.is_some_and(|highest| target.sequence_id < highest) {
            tracing::warn!(
                stack.id = %target.stack_id, told = %target.sequence_id, holds = ?highest,
                "refused to go back to an older deployment object"
            );
            return;
        }
        self.next = Some(target);
        self.take_up_next();
    }

    /// A removal that was stored is carried on with, even if the broker no longer mentions the stack.
    pub fn aim_as_recorded(&mut self) {
        let Some(record) = self.record.as_ref().filter(|record| record.removal.is_some()) else { return };
        if self.goal.is_some() {
            return;
        }
        let at = record.hops.published.unwrap_or(Timestamp::UNIX_EPOCH);
        self.aim(TargetStack {
            project: record.project.clone(),
            stack_id: record.stack,
            stack_name: record.stack_name.clone(),
            sequence_id: record.sequence,
            checksum: Checksum::of(b""),
            parsed_digest: Checksum::of(b""),
            removal: record.removal,
            grant: None,
            approvals: Vec::new(),
            published_at: at,
            targeted_at: record.hops.targeted.unwrap_or(at),
            released_at: record.hops.released.unwrap_or(at),
        });
    }

    /// Whether it is to go, as far as is known.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        let target = self.next.as_ref().or(self.goal.as_ref().map(|goal| &goal.target));
        target.is_some_and(|target| target.removal.is_some())
    }

    fn take_up_next(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        let Some(target) = self.next.take() else { return };
        // Again, because the record may have moved on while the target waited.
        if self.record.as_ref().is_some_and(|record| target.sequence_id < record.sequence) {
            return;
        }
        let same = self.goal.as_ref().is_some_and(|goal| {
            goal.target.sequence_id == target.sequence_id && goal.target.removal == target.removal
        });
        if same {
            if let Some(goal) = &mut self.goal {
                goal.target = target;
            }
            return;
        }
        let applied = self.record.as_ref().and_then(|record| record.applied);
        let (content, fallback) = match self.goal.take() {
            // Kept if only the removal was taken back.
            Some(goal)
                if goal.content.as_ref().is_some_and(|content| content.sequence == target.sequence_id) =>
            {
                (goal.content, goal.fallback)
            }
            Some(goal) => {
                // What was applied last: this content, or the one before if this one never was.
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
        self.setback = None;
        self.wake_at = None;
        self.stage = None;
    }

    /// What was on its way out when it was looked at has to be looked at again: no event tells of it.
    pub fn look_again(&mut self) {
        self.progress.looked.retain(|_, seen| !seen.as_ref().is_some_and(|seen| seen.deleting));
    }

    /// Refusals that were our own are over.
    pub fn stand_up(&mut self) {
        self.progress.failures.retain(|_, standing| standing.failure.reason != STOOD_DOWN);
        self.progress.inside.clear();
        self.setback = None;
    }

    /// A stack that stopped is tried again from the start.
    pub fn begin_next_cycle(&mut self, now: Timestamp) {
        if self.stage == Some(Stage::Stopped) {
            let due = self.progress.failures.values().all(|standing| standing.retry_at <= now);
            if due {
                let fetch = self.progress.fetch.take();
                self.forget_progress();
                self.progress.fetch = fetch;
            }
        }
    }

    /// All but the fights: who fights over an object does so whatever the goal is.
    fn forget_progress(&mut self) {
        self.progress = Progress { fights: std::mem::take(&mut self.progress.fights), ..Progress::default() };
    }

    /// What to do now; `None` if something is under way that has to be answered first.
    pub fn plan(&mut self, around: &Surroundings<'_>, now: Timestamp) -> Option<Plan> {
        self.take_up_next();
        let touched = std::mem::take(&mut self.touched);
        // Repairs go on beside each other, and beside a content that takes its time.
        let calm = matches!(self.stage, Some(Stage::Steady | Stage::Fetch));
        if self.in_flight > 0 && !calm {
            self.touched = touched;
            return None;
        }
        if let Some((_, until)) = self.setback
            && until > now
        {
            self.touched = touched;
            self.wake_at = Some(until);
            return None;
        }
        let goal = self.goal.as_ref()?;
        let situation = Situation {
            agent: around.worker.agent,
            session: around.worker.session,
            goal,
            record: self.record.as_ref(),
            held: around.worker.holds.contains(goal.target.stack_id),
            progress: &self.progress,
            observed: around.index,
            leaving: around.leaving,
            claims: around.claims,
            busy: &self.busy,
            now,
        };
        let next = if self.in_flight > 0 {
            let mut repairs = Plan::new(self.stage.unwrap_or(Stage::Steady));
            for key in &touched {
                let (step, wake) = steady::repair(&situation, key);
                repairs.steps.extend(step);
                repairs = repairs.wake(wake);
            }
            repairs
        } else {
            plan(&situation)
        };
        self.note(&next, now);
        Some(next)
    }

    fn note(&mut self, plan: &Plan, now: Timestamp) {
        if self.stage != Some(plan.stage) {
            self.progress.waiting_since = None;
        }
        self.stage = Some(plan.stage);
        self.wake_at = plan.wake_at;
        if plan.steps.is_empty() && plan.waiting_for.is_some() {
            self.progress.waiting_since.get_or_insert(now);
        }
        if plan.unready {
            self.progress.unready_since.get_or_insert(now);
        } else if plan.steps.is_empty() && self.in_flight == 0 {
            self.progress.unready_since = None;
        }
        for step in &plan.steps {
            self.in_flight += 1;
            if let Some(key) = step.key() {
                self.busy.insert(key.clone());
            }
        }
    }

    pub fn finish(&mut self, step: &Step, answer: &Answer, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(key) = step.key() {
            self.busy.remove(key);
            self.touched.insert(key.clone());
        }
        if let (Step::Fetch, Answer::Fetched(content)) = (step, answer)
            && let Some(goal) = &mut self.goal
            && goal.target.sequence_id == content.sequence
        {
            goal.content = Some(content.clone());
        }
        absorb(&mut self.progress, &mut self.record, step, answer, now);
        if let (Some(goal), Some(record)) = (&mut self.goal, &self.record)
            && record.applied == Some(goal.target.sequence_id)
        {
            goal.fallback = None;
        }
        match answer {
            Answer::Failed(failure) => {
                tracing::warn!(
                    step = step.name(),
                    object = step.key().map(ToString::to_string),
                    reason = failure.reason,
                    message = failure.message,
                    "step failed"
                );
                if step.key().is_none() && !matches!(step, Step::Fetch) {
                    let attempts = self.setback.map_or(0, |(attempts, _)| attempts) + 1;
                    self.setback = Some((attempts, now + backoff(attempts, failure.retry_after)));
                }
            }
            _ if step.key().is_none() => self.setback = None,
            _ => {}
        }
        self.take_up_next();
    }
}

//! The state of one stack in this process: its goal, its record, and what is under way.

use std::collections::{BTreeSet, HashSet, VecDeque};

use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::Checksum;
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::board::Whoami;
use super::claims::Around;
use super::figures::State;
use crate::execute::request::STOOD_DOWN;
use crate::observe::Index;
use crate::plan::absorb::absorb;
use crate::plan::attempt::waits_for;
use crate::plan::dispose::stands_on;
use crate::plan::steps::{Answer, Ground, Plan, Stage, Step};
use crate::plan::types::{FailureClass, Goal, Progress, Record, Situation};
use crate::plan::{backoff, plan, steady};
use crate::resource::KindName;

/// What a stack sees of the rest of the agent.
pub struct Surroundings<'a> {
    pub who: Whoami,
    pub index: &'a Index,
    pub neighbours: &'a Around<'a>,
}

/// Requests of one stack that are on their way at the same time. Few, so that a newer goal is taken up at once; more
/// than the client lets through, so that it is never idle.
const WINDOW: usize = 64;

#[derive(Clone, Default)]
pub struct StackState {
    pub goal: Option<Goal>,
    /// A newer goal, taken up as soon as nothing is in flight.
    pub next: Option<TargetStack>,
    pub record: Option<Record>,
    pub progress: Progress,
    /// Resources with a request under way.
    busy: HashSet<Key>,
    /// Planned, and not sent yet: dropped when a newer goal comes.
    queue: VecDeque<Step>,
    in_flight: usize,
    /// What has to stir before it can go on.
    pub parked: BTreeSet<Ground>,
    /// Its record is gone or on its way out: to be made again.
    pub record_lost: bool,
    /// Its plan depends on what other stacks mean to do.
    pub minds_others: bool,
    stage: Option<Stage>,
    /// The stage whose waiting is counted.
    waits_at: Option<Stage>,
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
        let older = highest.is_some_and(|highest| target.sequence_id < highest);
        if older {
            tracing::warn!(
                stack.id = %target.stack_id, told = %target.sequence_id, holds = ?highest,
                "refused to go back to an older deployment object"
            );
            // A run that has heard of nothing else keeps and repairs what the record says.
            self.aim_as_recorded();
            return;
        }
        let newer = self.goal.as_ref().is_some_and(|goal| {
            goal.target.sequence_id != target.sequence_id || goal.target.removal != target.removal
        });
        if newer {
            self.drop_queue();
        }
        self.next = Some(target);
        self.take_up_next();
    }

    /// A newer goal cancels what the older one still meant to do.
    fn drop_queue(&mut self) {
        for step in self.queue.drain(..) {
            if let Some(key) = step.key() {
                self.busy.remove(key);
            }
        }
    }

    /// The next steps to carry out.
    pub fn release(&mut self) -> Vec<Step> {
        let free = WINDOW.saturating_sub(self.in_flight).min(self.queue.len());
        self.in_flight += free;
        self.queue.drain(..free).collect()
    }

    /// Every kind that it has or wants something of.
    pub fn kinds(&self) -> impl Iterator<Item = KindName> {
        let recorded = self.record.iter().flat_map(|record| record.inventory.values());
        let contents = self.goal.iter().filter_map(|goal| goal.content.as_ref());
        let wanted = contents.flat_map(|content| content.objects.values());
        recorded.map(|entry| entry.kind.name()).chain(wanted.map(|wanted| wanted.kind.name()))
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        let goal = self.goal.as_ref().map(|goal| &goal.target.stack_name);
        goal.or(self.record.as_ref().map(|record| &record.stack_name)).cloned().unwrap_or_default()
    }

    /// Where it is, in one word.
    #[must_use]
    pub fn state(&self) -> State {
        let fails =
            !self.progress.failures.is_empty() || self.progress.fetch.is_some() || self.setback.is_some();
        match self.stage {
            None => State::Idle,
            Some(Stage::Remove | Stage::Done) => State::Removing,
            Some(Stage::Stopped) => State::Failing,
            Some(_) if fails => State::Failing,
            Some(Stage::Steady) if self.progress.unready_since.is_some() => State::Unready,
            Some(Stage::Steady) => State::Healthy,
            Some(_) => State::Delivering,
        }
    }

    #[must_use]
    pub fn is_busy_with(&self, key: &Key) -> bool {
        self.busy.contains(key)
    }

    /// Whether it is known what it wants: its content was read, or it is to go.
    #[must_use]
    pub fn has_decided(&self) -> bool {
        self.next.is_none()
            && self.goal.as_ref().is_some_and(|goal| goal.target.removal.is_some() || goal.content.is_some())
    }

    /// Its newest content is on its way.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.removal.is_none())
            || self.goal.as_ref().is_some_and(|goal| goal.target.removal.is_none() && goal.content.is_none())
                && self.progress.fetch.is_none()
    }

    /// Whether its content names something inside this namespace, or of this definition.
    #[must_use]
    pub fn wants_something_on(&self, ground: &Key) -> bool {
        let goal = self.goal.as_ref().filter(|goal| goal.target.removal.is_none());
        let content = goal.and_then(|goal| goal.content.as_ref());
        content.is_some_and(|content| content.objects.keys().any(|key| stands_on(key, ground)))
    }

    /// A removal that was stored is carried on with, even if the broker no longer mentions the stack.
    pub fn carry_on_removal(&mut self) {
        if self.record.as_ref().is_some_and(|record| record.removal.is_some()) {
            self.aim_as_recorded();
        }
    }

    /// A9: without a word from the broker, what the record says is what should be.
    pub fn aim_as_recorded(&mut self) {
        let Some(record) = self.record.as_ref().filter(|_| self.goal.is_none()) else { return };
        let at = record.hops.published.unwrap_or(Timestamp::UNIX_EPOCH);
        self.aim(TargetStack {
            project: record.project.clone(),
            stack_id: record.stack,
            stack_name: record.stack_name.clone(),
            sequence_id: record.sequence,
            checksum: record.checksum.unwrap_or_else(|| Checksum::of(b"")),
            // The content that was kept knows its own.
            parsed_digest: Checksum::of(b""),
            removal: record.removal,
            grant: record.grant.clone(),
            approvals: Vec::new(),
            published_at: at,
            targeted_at: record.hops.targeted.unwrap_or(at),
            released_at: record.hops.released.unwrap_or(at),
        });
    }

    fn take_up_next(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        let Some(target) = self.next.take() else { return };
        // Again, because the record may have moved on while the target waited.
        let older = self.record.as_ref().is_some_and(|record| target.sequence_id < record.sequence);
        if older {
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

    /// A neighbour decided something: what stopped because of it is tried from the start.
    pub fn decide_anew(&mut self) {
        if self.stage == Some(Stage::Stopped) && self.in_flight == 0 {
            self.forget_progress();
        }
        self.minds_others = false;
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

    /// Everything of the stack is gone over once more, a few at a time.
    pub fn sweep(&mut self) {
        if let Some(record) = self.record.as_ref().filter(|_| self.stage == Some(Stage::Steady)) {
            self.progress.unswept.extend(record.inventory.keys().cloned());
        }
    }

    /// All but the fights: who fights over an object does so whatever the goal is.
    fn forget_progress(&mut self) {
        self.progress = Progress {
            fights: std::mem::take(&mut self.progress.fights),
            rivals: std::mem::take(&mut self.progress.rivals),
            ..Progress::default()
        };
    }

    /// What to do now; `None` if something is under way that has to be answered first.
    pub fn plan(&mut self, around: &Surroundings<'_>, now: Timestamp) -> Option<Plan> {
        self.take_up_next();
        let touched = std::mem::take(&mut self.touched);
        // Repairs go on beside each other, and beside a content that takes its time.
        let calm = matches!(self.stage, Some(Stage::Steady | Stage::Fetch));
        let under_way = self.in_flight + self.queue.len() > 0;
        if under_way && !calm {
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
        if std::mem::take(&mut self.record_lost)
            && let Some(record) = self.record.as_ref().filter(|record| record.removal.is_none() && !under_way)
        {
            // E5: it deletes nothing, and is made again.
            self.queue.push_back(Step::WriteRecord(Box::new(record.clone())));
            return None;
        }
        let goal = self.goal.as_ref()?;
        let situation = Situation {
            agent: around.who.agent,
            session: around.who.session,
            goal,
            record: self.record.as_ref(),
            held: around.who.held,
            progress: &self.progress,
            observed: around.index,
            neighbours: around.neighbours,
            busy: &self.busy,
            now,
        };
        let mut next = if under_way {
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
        let steps = std::mem::take(&mut next.steps);
        for step in &steps {
            self.busy.extend(step.key().cloned());
        }
        self.queue.extend(steps);
        Some(next)
    }

    fn note(&mut self, plan: &Plan, now: Timestamp) {
        // A look in between belongs to the waiting: what is waited for may tell nobody that it went.
        let looks = !plan.steps.is_empty() && plan.steps.iter().all(|step| matches!(step, Step::Look { .. }));
        if !looks && self.waits_at != Some(plan.stage) {
            self.progress.waiting_since = None;
            self.waits_at = Some(plan.stage);
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
        self.parked.clone_from(&plan.parked);
        // While it is tried again, it still waits.
        let standings = self.progress.failures.values().chain(&self.progress.fetch);
        self.parked.extend(standings.filter_map(|standing| waits_for(&standing.failure)));
        self.minds_others = plan.minds_others;
    }

    /// What it waited for may be there now: what was missing because of it is tried again.
    pub fn stir(&mut self, ground: Ground, name: &str, now: Timestamp) {
        let failures = self.progress.failures.iter_mut();
        let waits = |key: &Key| match ground {
            Ground::Namespaces => key.namespace.as_deref() == Some(name),
            Ground::Definitions => name.ends_with(&format!(".{}", key.group)),
        };
        let missing = failures.filter(|(key, _)| waits(key)).map(|(_, standing)| standing);
        for standing in missing.chain(&mut self.progress.fetch) {
            if standing.failure.class == FailureClass::Missing {
                (standing.attempts, standing.retry_at) = (0, now);
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
        if let (Some(goal), Answer::FetchedEarlier(Some(content))) = (&mut self.goal, answer)
            && goal.fallback.is_none()
        {
            goal.fallback = Some(content.clone());
        }
        if let (Some(goal), Answer::ContentsForgotten) = (&mut self.goal, answer) {
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

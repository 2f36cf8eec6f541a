//! The state of one stack in this process: its goal, its record, and its running requests.

mod targets;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use brokkr_api::AgentId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::reason::Reason;
use brokkr_api::report::Report;
use brokkr_api::stacks::DriftPolicy;
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};

use super::counts::StackPhase;
use super::retries::Retries;
use crate::grant;
use crate::model::progress::Repairs;
use crate::model::{
    Content, FailureClass, Goal, OtherStacks, Plan, Prerequisite, Progress, Record, Situation, Stage, Step,
    StepResult, Suspensions, WaveClock,
};
use crate::observe::Index;
use crate::plan::absorb::absorb;
use crate::plan::report::unrecorded;
use crate::plan::retry::waits_for;
use crate::plan::{is_frozen, plan, steady};
use crate::resource::{KindIn, is_contained_in};

/// What a plan needs to know about the agent.
#[derive(Clone, Copy)]
pub struct AgentContext<'a> {
    pub agent: AgentId,
    /// The agent's own namespace.
    pub home: &'a str,
    pub session: i64,
    /// Whether the broker knows that the stack in question is held.
    pub held: bool,
    /// How long workloads must be ready before a stack counts as healthy.
    pub stable_after: SignedDuration,
}

/// The context of a plan: the agent, the observed objects and the other stacks.
pub struct Surroundings<'a> {
    pub context: AgentContext<'a>,
    pub index: &'a Index,
    pub other_stacks: &'a dyn OtherStacks,
}

/// The maximum number of concurrent requests of one stack: low, so that a newer target is adopted soon, but
/// above the default concurrency of the client, so that the client is never idle.
const WINDOW: usize = 64;

/// A whole plan of a steady stack looks at all its objects. It is made at most once in this time per object, so that frequent
/// changes of a large stack cost little. Changed objects are looked at, and repaired, at once.
const WHOLE_PLANS: SignedDuration = SignedDuration::from_micros(100);

#[derive(Clone, Default)]
pub struct StackState {
    pub goal: Option<Goal>,
    /// A newer target, adopted as soon as no request is in flight.
    pub next: Option<TargetStack>,
    /// A target that must not begin before its window opens.
    pub shut: Option<TargetStack>,
    pub record: Option<Record>,
    /// What is left alone.
    pub suspensions: Suspensions,
    /// For how long the delivery has waited for a wave.
    wave_clock: WaveClock,
    pub progress: Progress,
    /// Objects with a planned or running request.
    busy: HashSet<Key>,
    /// Steps that are planned but not sent yet; dropped when a newer target arrives.
    queue: VecDeque<Step>,
    in_flight: usize,
    /// What has to change before the stack can continue.
    pub blocked_on: BTreeSet<Prerequisite>,
    /// Its record was deleted or is being deleted, and must be created again.
    pub record_lost: bool,
    /// Its plan depends on other stacks.
    pub depends_on_others: bool,
    stage: Option<Stage>,
    /// Objects that changed since the last plan.
    pub touched: HashSet<Key>,
    pub wake_at: Option<Timestamp>,
    /// When the last whole plan of the steady state was made.
    planned_at: Option<Timestamp>,
    /// Failures of steps that are not about one object.
    retries: Retries,
}

impl StackState {
    #[must_use]
    pub fn resumed(record: Record) -> Self {
        let suspensions = Suspensions::restored(&record.suspensions);
        let wave_clock = WaveClock::restored(record.wait.as_ref());
        Self { record: Some(record), suspensions, wave_clock, ..Self::default() }
    }

    /// Returns the next steps to execute.
    pub fn release(&mut self) -> Vec<Step> {
        let free = WINDOW.saturating_sub(self.in_flight).min(self.queue.len());
        self.in_flight += free;
        self.queue.drain(..free).collect()
    }

    /// Returns the kinds of its recorded and desired objects, and the namespaces that these are in.
    pub fn kinds(&self) -> impl Iterator<Item = KindIn> {
        let recorded = self.record.iter().flat_map(|record| record.inventory.iter());
        let contents = self.goal.iter().filter_map(|goal| goal.content.as_ref());
        let desired = contents.flat_map(|content| content.objects.values());
        recorded
            .map(|(key, entry)| KindIn::of(key, &entry.kind))
            .chain(desired.map(|desired| KindIn::of(&desired.key, &desired.kind)))
    }

    /// Returns the name of the stack.
    #[must_use]
    pub fn name(&self) -> String {
        let goal = self.goal.as_ref().map(|goal| &goal.target.stack_name);
        goal.or(self.record.as_ref().map(|record| &record.stack_name)).cloned().unwrap_or_default()
    }

    /// Returns its phase.
    #[must_use]
    pub fn phase(&self) -> StackPhase {
        let fails = !self.progress.failures.objects.is_empty()
            || self.progress.failures.fetch.is_some()
            || self.retries.is_failing();
        match self.stage {
            None => StackPhase::Idle,
            Some(Stage::Remove | Stage::Done) => StackPhase::Removing,
            Some(Stage::Stopped) => StackPhase::Failing,
            Some(_) if fails => StackPhase::Failing,
            Some(Stage::Steady) if self.progress.readiness.unready_since.is_some() => StackPhase::Unready,
            Some(Stage::Steady) => StackPhase::Healthy,
            Some(_) => StackPhase::Delivering,
        }
    }

    /// Returns whether its objects were compared with its content since the start, or cannot be. A stack without a target is kept.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        let is_targeted = self.goal.is_some() || self.next.is_some();
        let has_content = !matches!(self.stage, None | Some(Stage::Announce | Stage::Fetch));
        !is_targeted || has_content || self.phase() == StackPhase::Failing
    }

    #[must_use]
    pub fn is_busy_with(&self, key: &Key) -> bool {
        self.busy.contains(key)
    }

    /// Returns whether no request is planned or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }

    /// Returns whether it has nothing to do and nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_targeted = self.goal.is_some() || self.next.is_some() || self.shut.is_some();
        let is_known = is_targeted || self.record.is_some();
        !is_known && !self.record_lost && self.is_idle()
    }

    /// Returns whether its intent is known: its content is fetched, or the stack is to be removed.
    #[must_use]
    pub fn has_decided(&self) -> bool {
        self.next.is_none()
            && self.goal.as_ref().is_some_and(|goal| goal.target.removal.is_some() || goal.content.is_some())
    }

    /// Returns whether its newest content is being fetched. A stack that its grant does not cover fetches nothing, and must
    /// not delay other stacks (D5).
    #[must_use]
    pub fn is_fetching(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.removal.is_none())
            || self.goal.as_ref().is_some_and(|goal| goal.target.removal.is_none() && goal.content.is_none())
                && self.progress.failures.fetch.is_none()
                && self.stage != Some(Stage::Stopped)
    }

    /// Returns whether its content has an object in this namespace, or of this definition.
    #[must_use]
    pub fn desires_object_in(&self, prerequisite: &Key) -> bool {
        let goal = self.goal.as_ref().filter(|goal| goal.target.removal.is_none());
        let content = goal.and_then(|goal| goal.content.as_ref());
        content.is_some_and(|content| content.objects.keys().any(|key| is_contained_in(key, prerequisite)))
    }

    /// Forgets objects that were being deleted when they were read, because no event reports the end of the
    /// deletion.
    pub fn forget_deleting(&mut self) {
        self.progress.lookups.objects.retain(|_, seen| !seen.as_ref().is_some_and(|seen| seen.deleting));
    }

    /// Forgets failures that were due to suspended writes.
    pub fn resume_writing(&mut self) {
        self.progress.failures.objects.retain(|_, retry| retry.failure.reason != Reason::WritesSuspended);
        self.progress.lookups.contained.clear();
        self.retries.retry_now();
    }

    /// Restarts a stack that stopped because of another stack, when that one has changed.
    pub fn restart_if_stopped(&mut self) {
        if self.stage == Some(Stage::Stopped) && self.in_flight == 0 {
            self.forget_progress();
        }
        self.depends_on_others = false;
    }

    /// Starts a stopped stack over.
    pub fn begin_next_cycle(&mut self, now: Timestamp) {
        if self.stage == Some(Stage::Stopped) {
            let due = self.progress.failures.objects.values().all(|retry| retry.retry_at <= now);
            if due {
                let fetch = self.progress.failures.fetch.take();
                self.forget_progress();
                self.progress.failures.fetch = fetch;
            }
        }
    }

    /// Schedules a check of every object of the stack, a few at a time. If drift is reported, what the watch does not show is read again.
    pub fn sweep(&mut self) {
        self.progress.lookups.drift.retain(|_, (seen, _)| seen.is_some());
        let is_reported = self.goal.as_ref().is_some_and(|goal| goal.target.drift == DriftPolicy::Report);
        let is_swept = self.stage == Some(Stage::Steady) && !is_reported;
        if let Some(record) = self.record.as_ref().filter(|_| is_swept) {
            self.progress.repairs.unswept.extend(record.inventory.keys().cloned());
        }
    }

    /// Forgets everything except the contests, which do not depend on the target.
    fn forget_progress(&mut self) {
        let Repairs { fights, rivals, .. } = std::mem::take(&mut self.progress.repairs);
        let repairs = Repairs { fights, rivals, ..Repairs::default() };
        self.progress = Progress { repairs, ..Progress::default() };
    }

    /// Plans the next steps; `None` if running requests have to finish first.
    pub fn plan(&mut self, around: &Surroundings<'_>, now: Timestamp) -> Option<Plan> {
        self.adopt_next_target(now);
        let touched = std::mem::take(&mut self.touched);
        // Repairs run concurrently with each other, and with a slow fetch.
        let calm = matches!(self.stage, Some(Stage::Steady | Stage::Fetch));
        let under_way = self.in_flight + self.queue.len() > 0;
        if under_way && !calm {
            self.touched = touched;
            return None;
        }
        let paused_until = self.retries.pause(now);
        let is_removed = self.goal.as_ref().is_none_or(|goal| goal.target.removal.is_some());
        if let Some(until) = paused_until.filter(|_| is_removed) {
            self.touched = touched;
            self.wake_at = Some(until);
            return None;
        }
        // While repairs are running, it is still to be created afterwards.
        if !under_way
            && paused_until.is_none()
            && self.goal.is_some()
            && self.record_lost
            && let Some(record) = self.record.as_ref().filter(|record| !record.is_removed())
        {
            // E5: deleting a record deletes no object; the record is created again.
            let record = Record { session: around.context.session, ..record.clone() };
            self.queue.push_back(Step::WriteRecord(Box::new(record)));
            return None;
        }
        self.wave_clock.count(now);
        let goal = self.goal.as_ref()?;
        let situation = Situation {
            agent: around.context.agent,
            home: around.context.home,
            session: around.context.session,
            goal,
            record: self.record.as_ref(),
            held: around.context.held,
            progress: &self.progress,
            observed: around.index,
            other_stacks: around.other_stacks,
            suspensions: &self.suspensions,
            wave_clock: &self.wave_clock,
            busy: &self.busy,
            stable_after: around.context.stable_after,
            now,
        };
        let whole_plan_at = paused_until.or_else(|| self.next_whole_plan().filter(|at| *at > now));
        let mut next = if under_way || whole_plan_at.is_some() {
            let repairs = Plan::new(self.stage.unwrap_or(Stage::Steady)).wake(whole_plan_at);
            match situation.record.filter(|_| paused_until.is_some()) {
                // A record that cannot be written must not keep objects from being repaired, unless nothing may be written.
                Some(record) if !is_frozen(&situation) => {
                    steady::repair_all(&situation, repairs, record.inventory.keys())
                }
                Some(_) => repairs,
                // The grant may have been narrowed since the last plan of the whole stack.
                None => {
                    let may_write = grant::acting(&goal.target).is_ok();
                    let is_covered = |key: &&Key| {
                        may_write && grant::refused(goal.target.grant.as_ref(), [*key]).is_empty()
                    };
                    steady::repair_all(&situation, repairs, touched.iter().filter(is_covered))
                }
            }
        } else {
            plan(&situation)
        };
        if under_way || whole_plan_at.is_none() {
            self.note(&next, now);
        } else {
            // Says nothing about the stack as a whole.
            self.wake_at = next.wake_at;
        }
        if !under_way && whole_plan_at.is_none() {
            let sequence = self.goal.as_ref().map(|goal| goal.target.sequence_id);
            self.wave_clock.set(sequence.zip(next.waits_for_wave), now);
            self.planned_at = Some(now);
        }
        let steps = std::mem::take(&mut next.steps);
        for step in &steps {
            self.busy.extend(step.key().cloned());
        }
        self.queue.extend(steps);
        Some(next)
    }

    /// Returns when the next whole plan may be made, if the stack is steady.
    fn next_whole_plan(&self) -> Option<Timestamp> {
        let objects = self.record.as_ref().map_or(0, |record| record.inventory.len());
        let pause = WHOLE_PLANS * i32::try_from(objects).unwrap_or(i32::MAX);
        self.planned_at.filter(|_| self.stage == Some(Stage::Steady)).map(|at| at + pause)
    }

    fn note(&mut self, plan: &Plan, now: Timestamp) {
        // Reads do not end the waiting, because they may be the only way to find out that an object is gone.
        let only_reads =
            !plan.steps.is_empty() && plan.steps.iter().all(|step| matches!(step, Step::ReadObject { .. }));
        if !only_reads && self.progress.waiting_since(plan.stage).is_none() {
            self.progress.waiting = None;
        }
        self.stage = Some(plan.stage);
        self.wake_at = plan.wake_at;
        if plan.stage == Stage::Stopped {
            self.progress.stopped_since.get_or_insert(now);
        } else if !only_reads {
            self.progress.stopped_since = None;
        }
        if plan.steps.is_empty() && plan.waiting_for.is_some() {
            self.progress.waiting.get_or_insert((plan.stage, now));
        }
        let readiness = &mut self.progress.readiness;
        if plan.unready {
            readiness.unready_since.get_or_insert(now);
            readiness.ready_since = None;
        } else if plan.steps.is_empty() && self.in_flight == 0 && plan.watch.is_empty() {
            readiness.unready_since = None;
            if plan.stage == Stage::Steady {
                readiness.ready_since.get_or_insert(now);
            } else {
                readiness.ready_since = None;
            }
        }
        self.blocked_on.clone_from(&plan.blocked_on);
        // A retried request still waits for its prerequisite.
        let retries = self.progress.failures.objects.values().chain(&self.progress.failures.fetch);
        self.blocked_on.extend(retries.filter_map(|retry| waits_for(&retry.failure)));
        self.depends_on_others = plan.depends_on_others;
    }

    /// Retries failures that waited for this prerequisite.
    pub fn on_prerequisite_changed(&mut self, prerequisite: Prerequisite, name: &str, now: Timestamp) {
        let failures = self.progress.failures.objects.iter_mut();
        let waits = |key: &Key| match prerequisite {
            Prerequisite::Namespace => key.namespace.as_deref() == Some(name),
            Prerequisite::Definition => name.ends_with(&format!(".{}", key.group)),
        };
        let missing = failures.filter(|(key, _)| waits(key)).map(|(_, retry)| retry);
        for retry in missing.chain(&mut self.progress.failures.fetch) {
            if retry.failure.class == FailureClass::Missing {
                (retry.attempts, retry.retry_at) = (0, now);
            }
        }
    }

    /// J4: returns a report that the record cannot be written, if that has lasted for too long.
    pub fn report_unwritten_record(&mut self, agent: AgentId, now: Timestamp) -> Option<Report> {
        let target = &self.goal.as_ref()?.target;
        let failure = self.retries.take_report(now)?;
        Some(unrecorded(agent, target, self.record.as_ref(), &failure, now))
    }

    pub fn finish(&mut self, step: &Step, answer: &StepResult, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(key) = step.key() {
            self.busy.remove(key);
            self.touched.insert(key.clone());
        }
        if let (Step::Fetch, StepResult::Fetched(content)) = (step, answer)
            && let Some(goal) = &mut self.goal
            && goal.target.sequence_id == content.sequence
        {
            goal.content = Some(in_phase(self.record.as_ref(), content));
        }
        absorb(&mut self.progress, &mut self.record, step, answer, now);
        if let (Some(goal), StepResult::FetchedEarlier(Some(content))) = (&mut self.goal, answer)
            && goal.fallback.is_none()
        {
            goal.fallback = Some(in_phase(self.record.as_ref(), content));
        }
        if let (Some(goal), StepResult::ContentsForgotten) = (&mut self.goal, answer) {
            goal.fallback = None;
        }
        match answer {
            StepResult::RecordFound(_) => self.resume_with_found_record(now),
            StepResult::Failed(failure) => {
                tracing::warn!(
                    step = step.name(),
                    object = step.key().map(ToString::to_string),
                    reason = failure.reason.code(),
                    message = %failure.message,
                    "step failed"
                );
                if step.key().is_none() && !matches!(step, Step::Fetch) {
                    self.retries.fail(step, failure, now);
                }
            }
            _ if step.key().is_none() => {
                self.record_lost &= !matches!(step, Step::WriteRecord(_));
                // Unless the record itself has a newer report, the same state is reported once more.
                if let Some(reported_at) = self.retries.succeed(step)
                    && let Some(record) = &mut self.record
                    && record.reports.iter().all(|report| report.at <= reported_at)
                {
                    record.outcome = None;
                }
            }
            _ => {}
        }
        self.adopt_next_target(now);
    }
}

/// Returns the content with the Helm hooks that its delivery runs.
fn in_phase(record: Option<&Record>, content: &Arc<Content>) -> Arc<Content> {
    content.in_phase(record.is_none_or(|record| record.is_install(content.sequence)))
}

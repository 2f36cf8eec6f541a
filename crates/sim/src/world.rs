//! Server, broker, records and agent together. The seed determines what happens next: a request reaches the server, an
//! answer or a watch event reaches the agent, a report reaches the broker, a controller acts, or time passes.
//!
//! The plan is called in [`Run::advance`], and its steps are executed in [`World::carry_out`], and nowhere else.

mod carry_out;
mod sending;
mod sessions;
mod watching;

use std::collections::BTreeSet;

use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::broker::Broker;
use crate::invariants::Invariants;
use crate::records::Records;
use crate::rng::Rng;
use crate::run::{Request, Run};
use crate::server::{Meddling, Server};

pub use sending::Fault;
pub use sessions::Memory;

/// After this long without a write, everything has settled, or waits for ever.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(700);
/// More turns than any story takes; beyond that, something loops.
const MOST_TURNS: usize = 20_000;

#[derive(Clone)]
pub struct World {
    pub agent: AgentId,
    pub server: Server,
    pub records: Records,
    pub broker: Broker,
    pub run: Run,
    pub rng: Rng,
    pub invariants: Invariants,
    pub fault: Option<Fault>,
    /// The percentage of requests that fail in some way; the agent may also die.
    pub chaos: usize,
    /// The number of requests so far.
    pub made: usize,
    /// The number of requests that wrote something.
    pub writes: usize,
    pub trace: Option<Vec<String>>,
    /// Contents that are stored in the cluster, for when the broker is unreachable.
    kept: BTreeSet<(StackId, SequenceId)>,
    /// Requests of earlier runs that are still under way.
    late: Vec<Request>,
    pub memory: Memory,
    /// How far the agent's clock is ahead of the server's.
    pub clock_step: SignedDuration,
    last_change: Timestamp,
}

/// The result of a check: an error describes the violated invariant.
pub type Checked = Result<(), String>;

impl World {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let agent = AgentId(Uuid::from_u128(0xa9e17));
        Self {
            agent,
            server: Server::new(now),
            records: Records::default(),
            broker: Broker::default(),
            run: Run::start(agent, 1, Vec::new()),
            rng: Rng::new(seed),
            invariants: Invariants::default(),
            fault: None,
            chaos: 0,
            made: 0,
            writes: 0,
            trace: None,
            kept: BTreeSet::new(),
            late: Vec::new(),
            memory: Memory::first(),
            clock_step: SignedDuration::ZERO,
            last_change: now,
        }
    }

    /// Returns a world with the fence, in which every promise is checked.
    #[must_use]
    pub fn strict(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.invariants.strict = true;
        world.server.fence = Some(world.agent);
        world
    }

    #[must_use]
    pub fn stack_id(number: u128) -> StackId {
        StackId(Uuid::from_u128(0x57ac_0000 + number))
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.server.now
    }

    /// Returns the time of the agent's clock.
    #[must_use]
    pub fn agent_now(&self) -> Timestamp {
        self.server.now + self.clock_step
    }

    /// Returns when the agent wants to be woken, by the server's clock.
    fn next_wake(&self) -> Option<Timestamp> {
        self.run.state.next_wake().map(|at| at - self.clock_step)
    }

    /// Returns whether something keeps the agent from seeing or recording the state of its stacks.
    #[must_use]
    pub fn is_impaired(&self) -> bool {
        self.records.refuses || !self.server.unwatchable.is_empty()
    }

    /// Ends what impairs the agent.
    pub fn heal(&mut self) {
        self.records.refuses = false;
        for kind in self.server.unwatchable.clone().into_keys() {
            self.allow_watch(&kind);
        }
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(what());
        }
    }

    /// Makes a change by someone else.
    pub fn meddle(&mut self, key: &Key, what: &Meddling) {
        self.server.meddle(key, what);
        self.after_change();
    }

    /// Lets an object become ready or unready.
    pub fn set_ready(&mut self, key: &Key, is_ready: bool) {
        self.server.set_ready(key, is_ready);
        self.after_change();
    }

    /// Runs until nothing happens any more, or only waiting is left.
    pub fn settle(&mut self) -> Checked {
        self.changed();
        for _ in 0..MOST_TURNS {
            if self.turn()? {
                continue;
            }
            let next = [self.next_wake(), self.server.next_event()].into_iter().flatten().min();
            match next {
                Some(next) if next.max(self.now()) <= self.last_change + SETTLED_AFTER => {
                    // The longer nothing happens, the later the next wake, as on a busy machine.
                    let idle = self.now().duration_since(self.last_change);
                    self.pass_until(next.max(self.now() + idle));
                }
                _ => return Ok(()),
            }
        }
        Err("it never settles".to_owned())
    }

    /// Runs this many turns.
    pub fn go_on(&mut self, turns: usize) -> Checked {
        for _ in 0..turns {
            if !self.turn()? {
                let later = self.now() + SignedDuration::from_millis(700);
                self.pass_until(later);
            }
        }
        Ok(())
    }

    /// Checks that the settled state is stable: later wakes change nothing, and if all stacks are complete,
    /// they do not even send a write.
    pub fn check_stable(&mut self) -> Checked {
        for _ in 0..10 {
            let before = (self.server.version, self.records.version());
            let (writes, complete) =
                (self.writes, self.records.all().all(|record| record.applied == Some(record.sequence)));
            let later = self.now() + SignedDuration::from_secs(700);
            self.pass_until(later);
            self.run.state.mark_all_dirty();
            while self.turn()? {}
            let changed = before != (self.server.version, self.records.version());
            if changed || complete && self.writes != writes {
                return Err("L1: it had settled, and wrote again although nothing had happened".to_owned());
            }
        }
        Ok(())
    }

    pub fn pass_until(&mut self, then: Timestamp) {
        self.server.now = then.max(self.server.now + SignedDuration::from_millis(1));
        self.server.settle();
        self.after_change();
        self.run.state.wake(self.agent_now());
    }

    /// Lets one event happen. Returns false if there is none at this moment.
    fn turn(&mut self) -> Result<bool, String> {
        self.server.now += SignedDuration::from_millis(2);
        if self.server.next_event().is_some_and(|at| at <= self.server.now) {
            self.server.settle();
            self.after_change();
        }
        if self.next_wake().is_some_and(|at| at <= self.server.now) {
            self.run.state.wake(self.agent_now());
        }
        if self.broker.changed && !self.broker.away {
            self.broker.changed = false;
            self.broker.held.clone_from(&self.run.held);
            let targets = self.broker.envelope();
            let now = self.agent_now();
            self.run.set_targets(targets, now);
        }
        for stack in self.run.state.take_dirty() {
            if !self.run.is_superseded {
                self.advance(stack)?;
            }
        }
        self.watch_what_is_asked();
        self.follow_discovery();
        self.happen()
    }

    fn advance(&mut self, stack: StackId) -> Checked {
        let from = self.run.requests.len();
        let now = self.agent_now();
        if let Some(plan) = self.run.advance(stack, now)
            && let Some(what) = plan.waiting_for
        {
            self.note(|| format!("{stack} waits, {:?}: {what}", plan.stage));
        }
        for request in &self.run.requests[from..] {
            self.invariants.on_planned(&self.run, request)?;
        }
        Ok(())
    }

    /// Chooses one of the possible events at random; watches lag behind everything else.
    fn happen(&mut self) -> Result<bool, String> {
        let reportable = if self.broker.away { 0 } else { self.run.reports.len().min(1) };
        let lagging: Vec<_> = self
            .run
            .watches
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(kind, _)| kind.clone())
            .collect();
        let weights = [
            self.run.requests.len().min(3) * 3,
            self.run.answers.len().min(1) * 3,
            reportable,
            self.run.acknowledged.len().min(1),
            lagging.len().min(2),
            self.late.len().min(1),
        ];
        let mut at = self.rng.below(weights.iter().sum());
        let Some(what) = weights.iter().position(|weight| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        }) else {
            return Ok(false);
        };
        match what {
            0 => {
                let chosen = self.rng.below(self.run.requests.len());
                let request = self.run.requests.remove(chosen);
                self.send(request)?;
            }
            1 => {
                if let Some((stack, step, answer)) = self.run.answers.pop_front() {
                    let now = self.agent_now();
                    let held = self.run.held.len();
                    self.run.finish(stack, &step, &answer, now);
                    // A stack is no longer held: the broker learns it with the next poll.
                    self.broker.changed |= self.run.held.len() < held;
                }
            }
            2 => {
                if let Some(report) = self.run.reports.pop_front() {
                    self.run.acknowledged.push_back(report.id);
                    if self.broker.receive(report) {
                        self.last_change = self.now();
                    }
                }
            }
            3 => {
                if let Some(id) = self.run.acknowledged.pop_front() {
                    self.run.state.forget_reports(&[id]);
                }
            }
            5 => {
                let request = self.late.remove(0);
                self.carry_out_late(&request);
            }
            _ => {
                let kind = self.rng.pick(&lagging).clone();
                if let Some(change) = self.run.watches.get_mut(&kind).and_then(|queue| queue.pop_front()) {
                    self.run.state.on_change(change);
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn changed(&mut self) {
        self.last_change = self.now();
    }
}

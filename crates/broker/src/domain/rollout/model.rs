//! A fleet, one rollout after the other, and everything that can happen to them, in random order. The promises hold at every
//! step: which version agents get, which they begin, and how many of them can become bad.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use brokkr_api::report::Transition;
use brokkr_api::rollouts::{Gate, RolloutPolicy, RolloutState, Share, StopReason, Wave};
use brokkr_api::tokens::Role;
use brokkr_api::windows::{Freeze, Opening, Weekly, WindowRule};
use brokkr_api::{AgentId, Selector, SequenceId, StackId, WindowId};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::command::Command;
use super::policy::{Kind, resolve};
use super::survey::{Member, Raises, Survey};
use super::verdict::{Contact, VersionReport};
use super::{Rollout, watched};
use crate::domain::facts::{AgentFacts, StackFacts};
use crate::domain::fixtures::{agent, object};
use crate::domain::grants::ProjectGrants;
use crate::domain::labels::{Label, LabelSet};
use crate::domain::release::{Release, place, released_to, seed};
use crate::domain::windows::{Lanes, WindowFacts, Windows};

/// How often agents poll.
const POLL: SignedDuration = SignedDuration::from_secs(30);
const STACK: StackId = StackId(Uuid::from_u128(7));

#[derive(Clone, Debug)]
struct Agent {
    facts: AgentFacts,
    /// When it was really gone, which the broker learns only later.
    gone_since: Option<Timestamp>,
    able_since: Timestamp,
    begun: SequenceId,
    /// Its last report: the version, whether it is healthy, and since when.
    report: Option<(SequenceId, bool, Timestamp)>,
    /// Whether it was bad with the version before that one.
    bad_before: bool,
    /// It got the version by a change of its own, not by a step of the rollout: it counts for no limit.
    moved: bool,
}

struct World {
    now: Timestamp,
    looked_at: Option<Timestamp>,
    watched_since: Timestamp,
    /// The sum of all time between two looks that no one can doubt was watched.
    watched: Duration,
    agents: Vec<Agent>,
    stack: StackFacts,
    rollout: Rollout,
    raises: Raises,
    /// The highest number of agents that were allowed in flight.
    limit: u64,
    /// The latest time that the clock has shown. If that is after now, it is not known what was first.
    latest: Timestamp,
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u16),
    /// The clock of the database is set, or no replica looks for a while.
    Jump(i32),
    Poll(usize),
    Finish(usize, bool),
    Silent(usize),
    Back(usize),
    Join(u128),
    Relabel(usize),
    /// Other windows and freezes are set, for all agents that have some now or for a part of them.
    Windows(u8),
    Submit(u8),
    Look,
    Command(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let agent = || 0usize..64;
    prop_oneof![
        3 => (1u16..200).prop_map(Event::Pass),
        1 => (-4000i32..4000).prop_map(Event::Jump),
        12 => agent().prop_map(Event::Poll),
        8 => (agent(), prop::bool::weighted(0.97)).prop_map(|(agent, good)| Event::Finish(agent, good)),
        1 => agent().prop_map(Event::Silent),
        1 => agent().prop_map(Event::Back),
        1 => (1..u128::MAX).prop_map(Event::Join),
        1 => agent().prop_map(Event::Relabel),
        1 => (0u8..5).prop_map(Event::Windows),
        1 => (0u8..4).prop_map(Event::Submit),
        10 => Just(Event::Look),
        1 => (0u8..8).prop_map(Event::Command),
    ]
}

fn labels(ring: bool, night: bool) -> LabelSet {
    let ring = Label::new("ring", if ring { "0" } else { "1" });
    let shift = Label::new("shift", if night { "night" } else { "any" });
    [ring, shift].into_iter().collect()
}

/// Returns the built-in policy, or one that begins with the agents of a ring.
fn policy(number: u8) -> RolloutPolicy {
    let ring = |size| Wave { selector: "ring=0".parse::<Selector>().ok(), size, gate: None };
    let waves = match number {
        0 => None,
        1 => Some(vec![ring(Share::ALL)]),
        2 => {
            let gate =
                Gate { approvals: 1, role: Role::Deployer, not_author: false, timeout_seconds: Some(900) };
            Some(vec![Wave::of(Share::Count(2)), Wave { gate: Some(gate), ..Wave::of(Share::Percent(50)) }])
        }
        _ => Some(vec![ring(Share::Count(1)), Wave::of(Share::Percent(50))]),
    };
    RolloutPolicy { waves, ..RolloutPolicy::default() }
}

/// A fifth of the agents may begin only at some times of a day. The history begins shortly before one of them.
/// Returns the windows with this number; 0 are those at the start.
fn windows(number: u8, now: Timestamp) -> Windows {
    let start = "02:00".parse().expect("a time");
    let rule = Weekly { timezone: "UTC".into(), days: Vec::new(), start, minutes: 60 };
    let of = if number == 4 { "shift=night,ring=0" } else { "shift=night" };
    let until = now + SignedDuration::from_mins(10);
    let rule_of_freeze = WindowRule::Freeze(Freeze { from: now, until, reason: String::new() });
    let frozen = [(1, "ring=0"), (2, "ring=0,shift=night"), (3, "shift=night")];
    let frozen = frozen.into_iter().find(|(of, _)| *of == number);
    let freeze = frozen.map(|(_, selector)| window("freeze", selector, rule_of_freeze));
    Windows::new([window("night", of, WindowRule::Weekly(rule))].into_iter().chain(freeze).collect())
}

fn window(name: &str, selector: &str, rule: WindowRule) -> WindowFacts {
    let selector = selector.parse().expect("a selector");
    WindowFacts::new(WindowId(Uuid::from_u128(1)), name.into(), None, selector, rule)
}

impl World {
    fn new(ids: Vec<u128>) -> Self {
        let now = Timestamp::from_second(1_000_000_000).expect("a time");
        let mut stack = StackFacts::new("default".into(), STACK, "web".into()).with_base(Some(object(1)));
        stack.grants = Arc::new(ProjectGrants::Unlimited);
        stack.windows = Arc::new(windows(0, now));
        let policy = resolve(&[policy(0)], Kind::Version).expect("staged");
        let mut world = Self {
            now,
            looked_at: None,
            watched_since: now,
            watched: Duration::ZERO,
            agents: Vec::new(),
            stack,
            rollout: Rollout { state: RolloutState::Completed, ..Rollout::new(policy) },
            raises: Raises::default(),
            limit: 0,
            latest: now,
        };
        for id in ids {
            world.join(id);
            let agent = world.agents.last_mut().expect("it has joined");
            (agent.begun, agent.report, agent.moved) =
                (SequenceId(1), Some((SequenceId(1), true, now)), false);
        }
        world
    }

    fn join(&mut self, id: u128) {
        let facts = AgentFacts {
            id: AgentId(Uuid::from_u128(id)),
            labels: labels(id.is_multiple_of(3), id.is_multiple_of(5)),
            labels_changed_at: self.now,
            ..agent()
        };
        self.agents.push(Agent {
            facts,
            gone_since: None,
            able_since: self.now,
            begun: SequenceId(0),
            report: None,
            bad_before: false,
            moved: true,
        });
    }

    fn base(&self) -> SequenceId {
        self.stack.base.as_ref().map_or(SequenceId(0), |base| base.sequence_id)
    }

    fn newest(&self) -> SequenceId {
        self.stack.newest().map_or(SequenceId(0), |newest| newest.sequence_id)
    }

    fn is_open(&self) -> bool {
        matches!(self.rollout.state, RolloutState::Running | RolloutState::Soaking | RolloutState::Gated)
    }

    fn seed(&self) -> u64 {
        seed(STACK, Some(self.base()))
    }

    /// Returns the version that the agent gets.
    fn gets(&self, agent: &Agent) -> SequenceId {
        released_to(&agent.facts, &self.stack).map_or(SequenceId(0), |object| object.sequence_id)
    }

    /// Returns whether a step of the rollout has released the version to the agent.
    fn is_released(&self, agent: &Agent) -> bool {
        self.released_at(agent).is_some()
    }

    fn released_at(&self, agent: &Agent) -> Option<Timestamp> {
        let (place, lanes) = (place(agent.facts.id, self.seed()), self.lanes(agent));
        self.raises.released_at(place, lanes, |selector| agent.facts.matches(selector))
    }

    fn lanes(&self, agent: &Agent) -> Lanes {
        let release = self.stack.releases().last();
        release.map_or(Lanes::default(), |release| release.lanes(&agent.facts, &self.stack))
    }

    /// Returns whether the agent may begin a version now.
    fn opening(&self, agent: &Agent) -> Opening {
        let schedule = self.stack.windows.schedule(&agent.facts, "default");
        schedule.map_or(Opening::Open { since: None }, |schedule| schedule.at(self.now))
    }

    /// Returns what the broker knows about the connection of the agent.
    fn contact(&self, agent: &Agent) -> Contact {
        let missed = agent.gone_since.map(|since| (since + POLL, self.now.duration_since(since)));
        match missed {
            Some((first, gone)) if gone >= POLL * 10 => Contact::Silent(Some(first)),
            Some((first, gone)) if gone >= POLL * 3 => Contact::Late(first),
            _ => {
                let since = agent.able_since.max(self.watched_since);
                let opened = if let Opening::Open { since } = self.opening(agent) { since } else { None };
                Contact::Present(opened.max(Some(since)))
            }
        }
    }

    /// Returns whether the agent can be the cause of a stop.
    fn is_culprit(&self, agent: &Agent) -> bool {
        let Some(released_at) = self.released_at(agent) else { return false };
        let has_failed =
            agent.report.is_some_and(|(version, healthy, _)| version == self.newest() && !healthy);
        let is_lost = agent.gone_since.is_some_and(|since| since + POLL >= released_at);
        let was_healthy = agent.report.is_some_and(|(version, ..)| version == self.newest());
        let able_since = released_at.max(agent.able_since).max(self.watched_since);
        let is_late = self.now.duration_since(able_since) >= SignedDuration::from_mins(15);
        has_failed || is_lost || was_healthy && agent.gone_since.is_some() || is_late
    }

    fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        for agent in &self.agents {
            let report = agent.report.filter(|(version, ..)| *version == self.newest());
            let place = place(agent.facts.id, self.seed());
            let matches = |selector: &Selector| agent.facts.matches(selector);
            let member = Member {
                place,
                in_wave: self.rollout.selector().is_none_or(matches),
                lanes: self.lanes(agent),
                opening: self.opening(agent),
                suspended: None,
                released_at: self.released_at(agent),
                contact: self.contact(agent),
                report: report.map(|(_, healthy, since)| VersionReport {
                    transition: if healthy { Transition::Healthy } else { Transition::Failed },
                    since,
                    bad_before: agent.bad_before,
                    awaits_approval: false,
                    waits_for_wave: false,
                }),
            };
            survey.add(&member, self.now);
        }
        survey
    }

    /// Stores the rollout, as a transaction does.
    fn store(&mut self) {
        let known: Vec<_> = self.stack.releases().last().map(|last| last.clauses.clone()).unwrap_or_default();
        for clause in self.rollout.clauses.iter().filter(|clause| !known.contains(clause)) {
            self.raises.push(clause.clone(), self.now);
        }
        let (newest, open) = (self.newest(), self.is_open());
        let releases = if self.rollout.state == RolloutState::Completed {
            self.stack = self.stack.clone().with_base(Some(object(newest.0)));
            Vec::new()
        } else {
            let mut releases = self.stack.releases().to_vec();
            if let Some(last) = releases.last_mut() {
                (last.open, last.clauses) = (open, self.rollout.clauses.clone());
            }
            releases
        };
        self.stack = self.stack.clone().with_releases(releases);
    }

    fn look(&mut self) {
        if !self.is_open() {
            return;
        }
        let (elapsed, watched_since) = watched(self.looked_at, self.watched_since, self.now);
        self.watched_since = watched_since;
        let certain = self.looked_at.map_or(SignedDuration::ZERO, |at| self.now.duration_since(at));
        self.watched += Duration::try_from(certain).unwrap_or_default().min(Duration::from_secs(10));
        self.looked_at = Some(self.now);
        let mut survey = self.survey();
        let is_gated = self.rollout.open_gate().is_some();
        let released: Vec<bool> = self.agents.iter().map(|agent| self.is_released(agent)).collect();
        self.limit = self.limit.max(self.rollout.in_flight_limit(&survey.figures));
        self.rollout.step(&mut survey, elapsed);
        assert!(self.rollout.soaked <= self.watched, "H9: only watched time soaks");
        if let Some(StopReason::TooManyBad { .. }) = self.rollout.stop_reason
            && self.now >= self.latest
        {
            let is_justified = self.agents.iter().any(|agent| self.is_culprit(agent));
            assert!(is_justified, "H4: stopped by an agent that was offline before its release");
        }
        self.store();
        // Agents that are gone do not keep it from completing, whether or not their window is open.
        if self.rollout.state == RolloutState::Completed {
            return;
        }
        for (at, was_released) in released.into_iter().enumerate() {
            let is_shut = matches!(self.opening(&self.agents[at]), Opening::Shut { .. });
            let is_released = self.is_released(&self.agents[at]);
            assert!(!is_shut || !is_released || was_released, "H8: released while its window is closed");
            assert!(!is_gated || is_released == was_released, "released without the approvals of its wave");
            // When its window opens, it begins at a time that no step has chosen.
            self.agents[at].moved |= is_shut && is_released;
        }
    }

    fn submit(&mut self, number: u8) {
        let newest = object(self.newest().0 + 1);
        let mut releases = self.stack.releases().to_vec();
        if let Some(last) = releases.last_mut() {
            last.open = false;
        }
        let (seed, clauses) = (self.seed(), Vec::new());
        releases.push(Release {
            object: newest,
            seed,
            open: true,
            clauses,
            revision: 1,
            windows: self.stack.windows.as_ref().clone(),
        });
        self.stack = self.stack.clone().with_releases(releases);
        self.rollout = Rollout::new(resolve(&[policy(number)], Kind::Version).expect("staged"));
        (self.raises, self.limit) = (Raises::default(), 0);
        (self.looked_at, self.watched_since) = (None, self.now);
        self.agents.iter_mut().for_each(|agent| agent.moved = false);
    }

    fn command(&mut self, number: u8) {
        let reason = || "a reason".to_owned();
        let command = match number {
            0 => Command::Pause,
            1 => Command::Resume,
            2 => Command::Promote,
            3 => Command::Skip,
            4 => Command::Stop { reason: reason() },
            5 => Command::Approve { by: "ana".to_owned() },
            6 => Command::Deny { by: "ana".to_owned(), reason: reason() },
            _ => Command::Abort { reason: reason() },
        };
        if self.rollout.state.has_ended() {
            return;
        }
        let figures = self.survey().figures;
        if self.rollout.command(command.clone(), &figures).is_ok() && command == Command::Resume {
            self.watched_since = self.now;
        }
        // Skipping is no watched time.
        self.watched = self.watched.max(self.rollout.soaked);
        self.store();
    }

    fn happen(&mut self, event: &Event) {
        self.latest = self.latest.max(self.now);
        let count = self.agents.len();
        let now = self.now;
        match event {
            Event::Pass(seconds) => self.now += SignedDuration::from_secs((*seconds).into()),
            Event::Jump(seconds) => {
                self.now += SignedDuration::from_secs((*seconds).into());
                // After that, an agent that falls silent looks as if it had been so before its release.
                self.agents.iter_mut().for_each(|agent| agent.moved |= *seconds < 0);
            }
            Event::Poll(number) => {
                let gets = self.gets(&self.agents[number % count]);
                let may_begin = matches!(self.opening(&self.agents[number % count]), Opening::Open { .. });
                let agent = &mut self.agents[number % count];
                if agent.gone_since.is_none() && gets > agent.begun && may_begin {
                    agent.begun = gets;
                }
            }
            Event::Finish(number, good) => {
                let agent = &mut self.agents[number % count];
                // A verdict stays: that healthy agents break later is not bounded by any limit.
                if agent.gone_since.is_none()
                    && agent.report.is_none_or(|(version, ..)| version < agent.begun)
                {
                    agent.bad_before = agent.report.is_some_and(|(_, healthy, _)| !healthy);
                    agent.report = Some((agent.begun, *good, now));
                }
            }
            Event::Silent(number) => {
                self.agents[number % count].gone_since.get_or_insert(now);
            }
            Event::Back(number) => {
                let agent = &mut self.agents[number % count];
                if agent.gone_since.take().is_some() {
                    (agent.able_since, agent.moved) = (now, true);
                }
            }
            Event::Join(id) => self.join(*id),
            Event::Relabel(number) => {
                let agent = &mut self.agents[number % count];
                let ring = agent.facts.labels.get("ring") == Some("0");
                let night = agent.facts.labels.get("shift") == Some("night");
                (agent.facts.labels, agent.able_since, agent.moved) = (labels(!ring, night), now, true);
            }
            Event::Windows(number) => {
                self.stack.windows = Arc::new(windows(*number, now));
                // Which agents begin when is decided by people then.
                self.agents.iter_mut().for_each(|agent| (agent.able_since, agent.moved) = (now, true));
            }
            Event::Submit(number) => self.submit(*number),
            Event::Look => self.look(),
            Event::Command(number) => self.command(*number),
        }
    }

    /// Checks the promises after an event.
    fn check(&self, before: &[(SequenceId, SequenceId)], event: &Event) -> Result<(), TestCaseError> {
        let (base, newest) = (self.base(), self.newest());
        for (at, agent) in self.agents.iter().enumerate() {
            let gets = self.gets(agent);
            let expected = if self.is_open() && self.is_released(agent) { newest } else { base };
            prop_assert_eq!(gets, expected, "H2, H3: after {:?}", event);
            let Some((got, begun)) = before.get(at) else { continue };
            prop_assert!(agent.begun >= *begun, "H5: no agent goes back");
            if self.is_open() && *got == newest && !matches!(event, Event::Relabel(_) | Event::Windows(_)) {
                prop_assert_eq!(gets, newest, "{:?} has withdrawn the version from one agent", event);
            }
        }
        if matches!(event, Event::Look) && self.rollout.accepted_bad == 0 {
            let is_exposed = |agent: &&Agent| agent.begun == newest && newest > base && !agent.moved;
            let is_proven = |agent: &&Agent| {
                let of_newest = agent.report.filter(|(version, ..)| *version == newest);
                of_newest.is_some_and(|(_, healthy, _)| healthy || agent.bad_before)
            };
            let unproven = self.agents.iter().filter(is_exposed).filter(|agent| !is_proven(agent)).count();
            let bound = self.rollout.allowed_bad(self.agents.len() as u64) + self.limit;
            prop_assert!(
                unproven as u64 <= bound,
                "H2: {unproven} agents may be bad, at most {bound} were announced"
            );
        }
        Ok(())
    }

    /// Lets everything go well from now on.
    fn quieten(&mut self) {
        if self.rollout.state == RolloutState::Paused {
            self.command(1);
        }
        // Until then, agents that are gone seem to have been there lately.
        self.now = self.now.max(self.latest);
        for _ in 0..1000 {
            if self.rollout.state == RolloutState::Completed {
                break;
            }
            let figures = self.survey().figures;
            let is_everywhere = figures.released >= figures.members;
            if !self.is_open() || is_everywhere && figures.bad > 0 {
                // A newer version reaches the agents that have failed.
                self.submit(0);
            }
            if self.rollout.state == RolloutState::Gated {
                self.command(5);
            }
            let is_shut = self.survey().wave.shut > 0;
            self.happen(&Event::Pass(if is_shut { 3600 } else { 9 }));
            for at in 0..self.agents.len() {
                self.happen(&Event::Poll(at));
                self.happen(&Event::Finish(at, true));
            }
            self.look();
        }
    }
}

/// How many steps the model takes, if `BROKKR_MODEL_STEPS` does not say otherwise. A step is a generated event.
const STEPS: u64 = 80_000;

#[test]
fn h2_h3_h4_h5_the_promises_hold_whatever_happens() {
    let wanted =
        std::env::var("BROKKR_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let config =
        ProptestConfig { max_shrink_iters: 4000, source_file: Some(file!()), ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let histories = (prop::collection::vec(1..u128::MAX, 1..40), prop::collection::vec(event(), 1..200));
    let (steps, completed) = (Cell::new(0), Cell::new(0));
    while steps.get() < wanted {
        let played = runner.run(&histories, |(ids, events)| {
            completed.set(completed.get() + u64::from(play(ids, &events)?));
            steps.set(steps.get() + events.len() as u64);
            Ok(())
        });
        if let Err(failure) = played {
            panic!("{failure}\n{runner}");
        }
    }
    println!("{} steps; {} histories ended with a completed rollout", steps.get(), completed.get());
}

/// Plays a history. Returns whether its last rollout was completed when everything went well at the end.
fn play(ids: Vec<u128>, events: &[Event]) -> Result<bool, TestCaseError> {
    let mut world = World::new(ids);
    world.submit(0);
    for event in events {
        let before: Vec<_> = world.agents.iter().map(|agent| (world.gets(agent), agent.begun)).collect();
        world.happen(event);
        world.check(&before, event)?;
    }
    // H4: silent agents block nothing. If all are silent, nothing can be completed.
    if world.agents.iter().all(|agent| agent.gone_since.is_some()) {
        return Ok(false);
    }
    world.quieten();
    prop_assert_eq!(world.rollout.state, RolloutState::Completed, "{:?}", world.survey().figures);
    Ok(true)
}

//! A whole rollout on an index in this process, by the functions that the engine calls: every agent waits in a long poll, and
//! is healthy before the next step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use brokkr_api::ids::Checksum;
use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutPolicy;
use brokkr_api::{AgentId, InstallationId};
use brokkr_broker::domain::envelope::{encode, envelope};
use brokkr_broker::domain::facts::{ObjectFacts, StackFacts};
use brokkr_broker::domain::release::{Clause, Release, place, seed};
use brokkr_broker::domain::rollout::policy::{Kind, resolve};
use brokkr_broker::domain::rollout::survey::{Contacts, Evidence, Raises};
use brokkr_broker::domain::rollout::verdict::{Contact, VersionReport};
use brokkr_broker::domain::rollout::{Decision, Rollout};
use brokkr_broker::domain::windows::{Lanes, Windows};
use brokkr_broker::index::{Changes, Freshness, Index, Waiting};
use jiff::Timestamp;

use super::fleet;
use crate::broker::args::BrokerArgs;
use crate::broker::figures::Figures;
use crate::broker::proc::memory_bytes;
use crate::results::percentile;

/// One agent of this many is absent, and one has returned lately. Without any, an agent would not even be looked up.
const ABSENT: usize = 100;
/// The longest time for a step of the engine, in milliseconds.
const LONGEST_STEP: f64 = 10.0;

pub fn run(args: &BrokerArgs, figures: &mut Figures) -> Result<()> {
    let staged = memory(args, figures)?;
    let agents = {
        let snapshot = staged.index.snapshot();
        snapshot.ids(&snapshot.everyone())
    };
    let waiting: Vec<Waiting> = agents.iter().map(|agent| staged.index.wait(*agent)).collect();
    // Agents that wait have polled before: removing the envelopes of affected agents from the cache is a part of a step.
    agents.iter().for_each(|agent| drop(staged.index.envelope(*agent)));
    let begun = staged.apply(staged.under_way(&[], 1));
    figures
        .add("rollout_begin_woken", begun.woken as f64)
        .at_most(0.0)
        .note(format!("of {} agents that wait", waiting.len()));
    steps(&staged, &agents, figures)?;
    complete(&staged, &agents, figures);
    Ok(())
}

/// A stack of all agents, and a version of it that is rolled out.
struct Staged {
    index: Arc<Index>,
    installation: InstallationId,
    /// Before the rollout.
    stack: StackFacts,
    version: ObjectFacts,
    seed: u64,
}

/// A change of the index.
struct Applied {
    millis: f64,
    woken: u64,
}

impl Staged {
    fn under_way(&self, clauses: &[Clause], revision: i64) -> StackFacts {
        let (object, seed, clauses) = (self.version, self.seed, clauses.to_vec());
        self.stack.clone().with_releases(vec![Release {
            object,
            seed,
            open: true,
            clauses,
            revision,
            windows: Windows::default(),
        }])
    }

    fn completed(&self) -> StackFacts {
        self.stack.clone().with_base(Some(self.version))
    }

    fn apply(&self, stack: StackFacts) -> Applied {
        let changes = Changes { stacks: vec![stack], ..Changes::default() };
        let before = self.index.woken();
        let begun = Instant::now();
        self.index.apply(changes, Freshness::unread());
        Applied { millis: millis_since(begun), woken: self.index.woken() - before }
    }
}

/// Compares the memory of the index without a rollout and with one that has reached half of the agents.
fn memory(args: &BrokerArgs, figures: &mut Figures) -> Result<Staged> {
    let resident = || memory_bytes(std::process::id(), "VmRSS");
    let installation = InstallationId::generate();
    let stack = fleet::stack("rollout", "*", fleet::object(1))?;
    let before = resident()?;
    let index = fleet::index(args, installation, stack.clone())?;
    let without = resident()?;
    let seed = seed(stack.id, stack.newest().map(|object| object.sequence_id));
    let staged = Staged { index, installation, stack, version: fleet::object(2), seed };
    staged.apply(
        staged.under_way(&[Clause { selector: None, lanes: Lanes::default(), upto: u64::MAX / 2 }], 1),
    );
    let with = resident()?;
    staged.apply(staged.stack.clone());
    figures
        .add("rollout_memory_growth_percent", (with - without) / (without - before) * 100.0)
        .at_most(1.0)
        .note(format!(
            "resident memory of an index of {} agents in this process: {:.2} MiB without a rollout, {:.2} MiB with one",
            args.fleet,
            (without - before) / 1048576.0,
            (with - before) / 1048576.0
        ));
    Ok(staged)
}

/// How long each step took, in milliseconds.
#[derive(Default)]
struct StepTimes {
    survey: Vec<f64>,
    decide: Vec<f64>,
    index: Vec<f64>,
    whole: Vec<f64>,
}

impl StepTimes {
    fn push(&mut self, survey: f64, decide: f64, index: f64) {
        self.survey.push(survey);
        self.decide.push(decide);
        self.index.push(index);
        self.whole.push(survey + decide + index);
    }

    fn add_to(&self, figures: &mut Figures) {
        let note = |what: &str, rounds: &[f64]| format!("{what}; p99 {:.1} ms", percentile(rounds, 99));
        let steps = self.whole.len();
        figures
            .add_rounds("rollout_step_ms", &self.whole)
            .at_most(LONGEST_STEP)
            .note(note(&format!("survey, decision and index; {steps} steps"), &self.whole));
        figures
            .add_rounds("rollout_survey_ms", &self.survey)
            .note(note("every agent is judged", &self.survey));
        figures
            .add_rounds("rollout_decide_ms", &self.decide)
            .note(note("with the place of the new mark", &self.decide));
        figures
            .add_rounds("rollout_index_ms", &self.index)
            .note(note("affected agents are found, and woken", &self.index));
    }
}

/// Takes every step of the built-in waves, which do not soak.
fn steps(staged: &Staged, agents: &[AgentId], figures: &mut Figures) -> Result<()> {
    let now = Timestamp::now();
    let policy = RolloutPolicy { soak_seconds: Some(0), ..RolloutPolicy::default() };
    let policy = resolve(&[policy], Kind::Version).context("the policy has no waves")?;
    let mut rollout = Rollout::new(policy);
    let contacts = contacts(agents, now);
    let (raises, reports) = (Raises::default(), HashMap::new());
    let mut evidence = Evidence { raises, reports, contacts: &contacts, watched_since: now };
    let mut order: Vec<(u64, AgentId)> =
        agents.iter().map(|agent| (place(*agent, staged.seed), *agent)).collect();
    order.sort_unstable();
    let (mut released, mut revision, mut wrong) = (0, 1, 0);
    let mut times = StepTimes::default();
    loop {
        let version = (staged.version.sequence_id, revision);
        let begun = Instant::now();
        let survey =
            staged.index.snapshot().survey(staged.stack.id, version, rollout.selector(), &evidence, now);
        let survey_millis = millis_since(begun);
        let mut survey = survey.context("the index does not know the rollout")?;
        let begun = Instant::now();
        let decision = rollout.step(&mut survey, Duration::ZERO);
        let decide_millis = millis_since(begun);
        match decision {
            Some(Decision::Release(_)) => {}
            Some(Decision::Complete) => break,
            other => bail!("the rollout does not go on: {other:?}, {:?}", survey.figures),
        }
        revision += 1;
        let applied = staged.apply(staged.under_way(&rollout.clauses, revision));
        times.push(survey_millis, decide_millis, applied.millis);
        let upto = rollout.clauses.iter().map(|clause| clause.upto).max().unwrap_or_default();
        let end = order.partition_point(|(place, _)| *place <= upto);
        let reached = &order[released..end];
        wrong += applied.woken.abs_diff(reached.len() as u64);
        evidence.raises.push(Clause { selector: None, lanes: Lanes::default(), upto }, now);
        evidence.reports.extend(reached.iter().map(|(_, agent)| (*agent, healthy(now))));
        released = end;
    }
    ensure!(released == agents.len(), "only {released} agents have the version");
    times.add_to(figures);
    figures
        .add("rollout_step_wrongly_woken", wrong as f64)
        .at_most(0.0)
        .note("woken without the version, or not woken with it, in all steps");
    Ok(())
}

/// Returns agents that are absent, but not of this stack, and members that have returned: neither changes the rollout.
fn contacts(agents: &[AgentId], now: Timestamp) -> Contacts {
    let some = || agents.iter().step_by(ABSENT);
    Contacts {
        absent: some().map(|_| (AgentId::generate(), Contact::Silent(None))).collect(),
        returned: some().map(|agent| (*agent, now)).collect(),
    }
}

fn healthy(since: Timestamp) -> VersionReport {
    VersionReport {
        transition: Transition::Healthy,
        since,
        bad_before: false,
        awaits_approval: false,
        waits_for_wave: false,
    }
}

/// Completes the rollout: the version becomes the one that every agent gets, and every agent has it already.
fn complete(staged: &Staged, agents: &[AgentId], figures: &mut Figures) {
    let before = envelopes(staged, agents);
    let completed = staged.apply(staged.completed());
    let after = envelopes(staged, agents);
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    figures
        .add("rollout_complete_woken", completed.woken as f64)
        .at_most(0.0)
        .note(format!("of {} agents that wait", staged.index.waiting()));
    figures
        .add("rollout_complete_changed", changed as f64)
        .at_most(0.0)
        .note(format!("of the envelopes of {} agents", agents.len()));
    figures.add("rollout_complete_ms", completed.millis).note("of the index");
}

/// Returns the digest of each agent's envelope. Computes them, because the cache would keep an envelope whose change was missed.
fn envelopes(staged: &Staged, agents: &[AgentId]) -> Vec<Option<Checksum>> {
    let snapshot = staged.index.snapshot();
    let digest = |agent: &AgentId| {
        let facts = snapshot.agent(*agent)?;
        let envelope =
            envelope(staged.installation, facts, snapshot.candidates(facts), snapshot.health_rules());
        Some(Checksum::of(&encode(&envelope).bytes))
    };
    agents.iter().map(digest).collect()
}

fn millis_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

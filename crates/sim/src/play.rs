//! Runs a story: as it is, with a fault at every step, or with everything at once.

use std::collections::BTreeMap;
use std::fmt;

use brokkr_api::StackId;
use brokkr_api::envelope::Grant;

use crate::case::{Act, Case};
use crate::end::{self, End};
use crate::rng::Rng;
use crate::world::{Checked, Fault, World};

/// A running story.
#[derive(Clone)]
pub struct Stage {
    pub world: World,
    /// How many stacks each slot had before the current one.
    earlier_stacks: Vec<u128>,
    latest: Vec<Vec<crate::objects::Item>>,
}

impl Stage {
    #[must_use]
    pub fn new(case: &Case) -> Self {
        let mut world = if case.strict { World::strict(case.seed) } else { World::new(case.seed) };
        world.server.pace = case.pace;
        world.trace = case.trace.then(Vec::new);
        Self { world, earlier_stacks: vec![0; 3], latest: vec![Vec::new(); 3] }
    }

    #[must_use]
    pub fn stack(&self, slot: usize) -> StackId {
        let slot_number = u128::try_from(slot).unwrap_or_default();
        World::stack_id(slot_number * 100 + self.earlier_stacks[slot])
    }

    pub fn act(&mut self, act: &Act) {
        self.world.note(|| format!("• {act:?}"));
        match act {
            Act::Submit(slot, items) => self.submit(*slot, items.clone()),
            Act::Again(slot) => {
                let items = self.latest[*slot].clone();
                if !items.is_empty() && !self.world.broker.is_deleted(self.stack(*slot)) {
                    self.submit(*slot, items);
                }
            }
            Act::Delete(slot) => self.world.broker.delete(self.stack(*slot)),
            Act::Untarget(slot) => self.world.broker.target(self.stack(*slot), false),
            Act::Target(slot) => self.world.broker.target(self.stack(*slot), true),
            Act::Meddle(key, what) => self.world.meddle(key, what),
            Act::BreakWatches => self.world.break_watches(),
            Act::Sweep => {
                self.world.run.state.sweep();
            }
            Act::BrokerGoes => self.world.broker.away = true,
            Act::BrokerReturns => self.world.broker_returns(),
            Act::DenyWatch(kind) => self.world.deny_watch(kind),
            Act::AllowWatch(kind) => self.world.allow_watch(kind),
            Act::RefuseRecords => self.world.records.refuses = true,
            Act::AcceptRecords => self.world.records.refuses = false,
            Act::DropRecord(slot) => self.world.drop_record(self.stack(*slot)),
            Act::DropMemory => self.world.memory.count = None,
            Act::Restart(step) => self.world.restart(*step),
            Act::Narrow(slot) => {
                let grant = Grant { namespaces: vec!["shop".into()], kinds: vec!["*".into()], account: None };
                self.world.broker.grant(self.stack(*slot), Some(grant));
            }
            Act::Widen(slot) => self.world.broker.grant(self.stack(*slot), None),
        }
    }

    /// Returns the violation, with the trace if one was recorded.
    fn with_trace(&self, violation: String) -> String {
        match &self.world.trace {
            Some(trace) => format!("{violation}\n\ntrace:\n{}", trace.join("\n")),
            None => violation,
        }
    }

    fn submit(&mut self, slot: usize, items: Vec<crate::objects::Item>) {
        if self.world.broker.is_deleted(self.stack(slot)) {
            self.earlier_stacks[slot] += 1;
        }
        let (stack, now) = (self.stack(slot), self.world.now());
        self.world.broker.submit(stack, &format!("stack-{slot}"), &items, now);
        self.latest[slot] = items;
    }
}

/// Runs one act after the other, each after the last has settled, and checks the final state.
pub fn quietly(stage: &mut Stage, acts: &[Act]) -> Result<End, String> {
    let end = acts.iter().try_for_each(|act| {
        stage.act(act);
        stage.world.settle()
    });
    end.and_then(|()| finish(stage)).map_err(|violation| stage.with_trace(violation))
}

fn finish(stage: &mut Stage) -> Result<End, String> {
    stage.world.broker_returns();
    stage.world.settle()?;
    if stage.world.is_impaired() {
        end::check_truth(&stage.world)?;
        stage.world.heal();
        stage.world.settle()?;
    }
    if stage.world.records.has_unread() {
        // A record that was created after the next run had read its records is found at the next start.
        stage.world.crash();
        stage.world.settle()?;
    }
    end::check(&stage.world)?;
    Ok(End::of(&stage.world))
}

/// A story that was run without a fault, with the state before each act: for a fault in a later act, the earlier ones need
/// not run again.
pub struct Rehearsal<'a> {
    case: &'a Case,
    checkpoints: Vec<(usize, Stage)>,
    clean: End,
    /// How many requests the story has.
    pub steps: usize,
}

impl<'a> Rehearsal<'a> {
    pub fn run(case: &'a Case) -> Result<Self, String> {
        let mut stage = Stage::new(case);
        let mut checkpoints = Vec::new();
        for act in &case.acts {
            checkpoints.push((stage.world.made, stage.clone()));
            stage.act(act);
            stage.world.settle().map_err(|violation| stage.with_trace(violation))?;
        }
        let steps = stage.world.made;
        let clean = finish(&mut stage).map_err(|violation| stage.with_trace(violation))?;
        stage.world.check_stable().map_err(|violation| stage.with_trace(violation))?;
        Ok(Self { case, checkpoints, clean, steps })
    }

    /// Runs the story with this fault: the final state must be the same, unless stacks contest a resource. Returns how
    /// many requests were made.
    pub fn run_with(&self, fault: Fault) -> Result<usize, String> {
        let number = self.checkpoints.partition_point(|(made, _)| *made <= fault.at()).max(1) - 1;
        let (made, stage) = &self.checkpoints[number];
        let mut stage = stage.clone();
        stage.world.fault = Some(fault);
        let end = quietly(&mut stage, &self.case.acts[number..])?;
        if !self.clean.allows(&end) && !self.case.is_contested() {
            return Err(stage.with_trace(difference(&self.clean, &end)));
        }
        Ok(stage.world.made - made)
    }
}

/// Runs the story without a fault, and then with this fault at every step. Returns how many times the story was run.
pub fn with_a_fault_everywhere(case: &Case, fault: impl Fn(usize) -> Fault) -> Result<usize, String> {
    let rehearsal = Rehearsal::run(case)?;
    for at in 0..rehearsal.steps {
        let fault = fault(at);
        rehearsal.run_with(fault).map_err(|violation| format!("{fault:?}: {violation}"))?;
    }
    Ok(rehearsal.steps + 1)
}

/// Runs everything at once: overlapping acts, random faults, broken watches. Then the faults end.
pub fn wildly(case: &Case, chaos: usize) -> Checked {
    let mut stage = Stage::new(case);
    let mut rng = Rng::new(case.seed ^ 0xc4a0_5c4a);
    stage.world.invariants.racing = true;
    stage.world.chaos = chaos;
    let end = case.acts.iter().try_for_each(|act| {
        stage.act(act);
        if rng.percent(10) {
            stage.world.break_watches();
        }
        stage.world.go_on(rng.below(40))
    });
    stage.world.chaos = 0;
    let end = end.and_then(|()| finish(&mut stage)).and_then(|_| stage.world.check_stable());
    end.map_err(|violation| stage.with_trace(violation))
}

fn difference(clean: &End, other: &End) -> String {
    if let Some(what) = first_difference(&clean.objects, &other.objects) {
        return format!("D6: the final state of {what}");
    }
    let stacks = clean.records.keys().filter(|stack| other.records.contains_key(stack));
    for stack in stacks {
        let (clean, other) = (&clean.records[stack], &other.records[stack]);
        if let Some(what) = first_difference(&clean.inventory, &other.inventory) {
            return format!("D6: the record of {stack} about {what}");
        }
    }
    if let Some(what) = first_difference(&clean.records, &other.records) {
        return format!("D6: the record of {what}");
    }
    format!("D4: reports differ\n  without: {:?}\n  with:    {:?}", clean.reported, other.reported)
}

fn first_difference<K: Ord + fmt::Display, V: PartialEq + fmt::Debug>(
    clean: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
) -> Option<String> {
    let key = clean.keys().chain(other.keys()).find(|key| clean.get(key) != other.get(key))?;
    let (clean, other) = (clean.get(key), other.get(key));
    Some(format!("{key} differs\n  without: {clean:?}\n  with:    {other:?}"))
}

/// Runs the stories of many seeds. The first that fails is shortened as far as possible and printed in full.
/// `BROKKR_SIM_SEED` runs only one seed, `BROKKR_SIM_CASES` sets the number of seeds, `BROKKR_SIM_WHOLE=1` turns
/// shortening off.
pub fn stories(count: u64, play: impl Fn(&Case) -> Result<usize, String>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("BROKKR_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BROKKR_SIM_CASES").unwrap_or(count),
    };
    let mut runs = 0;
    for seed in seeds.clone() {
        let case = Case::from_seed(seed);
        match play(&case) {
            Ok(count) => runs += count,
            Err(_) => {
                let case = if number("BROKKR_SIM_WHOLE").is_some() { case } else { shortened(case, &play) };
                let violation = play(&Case { trace: true, ..case.clone() }).err().unwrap_or_default();
                panic!("seed {seed} (again: BROKKR_SIM_SEED={seed}), pace {}\n{violation}", case.pace);
            }
        }
    }
    println!("{} stories, {runs} runs", seeds.end - seeds.start);
}

/// Leaves out acts, and resources of acts, for as long as the story still fails.
fn shortened(mut case: Case, play: &impl Fn(&Case) -> Result<usize, String>) -> Case {
    while let Some(shorter) =
        (0..case.acts.len()).flat_map(|at| without(&case, at)).find(|shorter| play(shorter).is_err())
    {
        case = shorter;
    }
    case
}

fn without(case: &Case, at: usize) -> Vec<Case> {
    let mut shorter = case.clone();
    shorter.acts.remove(at);
    let mut all = vec![shorter];
    if let Act::Submit(slot, items) = &case.acts[at] {
        for left_out in 0..items.len() {
            let mut items = items.clone();
            items.remove(left_out);
            let mut shorter = case.clone();
            shorter.acts[at] = Act::Submit(*slot, items);
            all.push(shorter);
        }
    }
    all
}

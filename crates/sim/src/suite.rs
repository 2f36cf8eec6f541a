//! Many stories, each with every fault at every step, and their final states compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::case::Case;
use crate::play::Rehearsal;
use crate::server::Trouble;
use crate::world::Fault;

/// The result of a suite.
#[derive(Debug, Default)]
pub struct SuiteResult {
    pub seeds: u64,
    /// Seeds whose final states are compared, because they do not depend on what happens first.
    pub compared: u64,
    /// How many times a story was run.
    pub stories: usize,
    /// How many requests were made.
    pub steps: usize,
    pub violations: Vec<Violation>,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub seed: u64,
    /// The fault with which it happened; none if it happened without one.
    pub fault: Option<Fault>,
    /// The promise or invariant that does not hold, such as `J3`.
    pub invariant: String,
    pub text: String,
}

/// A fault, given the number of the request at which it happens.
type FaultAt = fn(usize) -> Fault;

/// Faults that leave no doubt about the request.
pub const PLAIN: &[FaultAt] = &[Fault::Crash, Fault::LostAnswer, Fault::Overload];
/// Requests that outlive their process.
pub const LATE: &[FaultAt] = &[Fault::Outlived, Fault::LateRecord];
/// Every answer of a server in trouble, one after the other.
pub const TROUBLE: &[FaultAt] = &[|at| Fault::Status(at, Trouble::ALL[at % Trouble::ALL.len()])];

/// Runs the stories of these seeds: once without a fault, and then with each fault at every `stride`-th step, beginning
/// with another step for each seed. For each seed and kind of fault, the first violation counts.
#[must_use]
pub fn run(
    seeds: impl Iterator<Item = u64>,
    story: impl Fn(u64) -> Case,
    faults: &[&[FaultAt]],
    stride: usize,
) -> SuiteResult {
    let mut result = SuiteResult::default();
    for seed in seeds {
        result.seeds += 1;
        let case = story(seed);
        result.compared += u64::from(!case.is_contested());
        result.stories += 1;
        let rehearsal = match Rehearsal::run(&case) {
            Ok(rehearsal) => rehearsal,
            Err(text) => {
                result.violations.push(Violation::new(seed, None, text));
                continue;
            }
        };
        result.steps += rehearsal.steps;
        for fault in faults.iter().copied().flatten() {
            let begin = usize::try_from(seed).unwrap_or_default() % stride;
            for at in (begin..rehearsal.steps).step_by(stride) {
                result.stories += 1;
                match rehearsal.run_with(fault(at)) {
                    Ok(steps) => result.steps += steps,
                    Err(text) => {
                        result.violations.push(Violation::new(seed, Some(fault(at)), text));
                        break;
                    }
                }
            }
        }
    }
    result
}

impl Violation {
    fn new(seed: u64, fault: Option<Fault>, text: String) -> Self {
        // Texts begin with the promises that are broken, such as `B5, B6: `.
        let invariant = text.split_once(": ").map(|(before, _)| before).filter(|before| before.len() <= 8);
        Self { seed, fault, invariant: invariant.unwrap_or("L1").to_owned(), text }
    }
}

/// Runs the stories of the seeds from 0 on all cores.
#[must_use]
pub fn run_on_all_cores(
    seeds: u64,
    story: fn(u64) -> Case,
    faults: &[&[FaultAt]],
    stride: usize,
) -> SuiteResult {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut result = SuiteResult::default();
    std::thread::scope(|scope| {
        let share = |first: usize| (0..seeds).skip(first).step_by(threads);
        let parts: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run(share(first), story, faults, stride))).collect();
        for part in parts {
            let part = part.join().expect("a story does not panic");
            result.seeds += part.seeds;
            result.compared += part.compared;
            result.stories += part.stories;
            result.steps += part.steps;
            result.violations.extend(part.violations);
        }
    });
    result.violations.sort_by_key(|violation| violation.seed);
    result
}

impl SuiteResult {
    /// Returns the violations by invariant.
    #[must_use]
    pub fn by_invariant(&self) -> BTreeMap<&str, Vec<&Violation>> {
        let mut by_invariant: BTreeMap<&str, Vec<&Violation>> = BTreeMap::new();
        for violation in &self.violations {
            by_invariant.entry(&violation.invariant).or_default().push(violation);
        }
        by_invariant
    }

    #[must_use]
    pub fn to_json(&self, commit: &str) -> Value {
        let show = |violation: &&Violation| {
            let fault = violation.fault.map(|fault| format!("{fault:?}"));
            json!({"seed": violation.seed, "fault": fault, "text": violation.text})
        };
        let violations: BTreeMap<&str, Vec<Value>> = self
            .by_invariant()
            .into_iter()
            .map(|(invariant, violations)| (invariant, violations.iter().map(show).collect()))
            .collect();
        json!({
            "commit": commit, "seeds": self.seeds, "compared": self.compared, "stories": self.stories, "steps": self.steps,
            "violations": violations,
        })
    }
}

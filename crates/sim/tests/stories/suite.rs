//! Many stories, each with every fault at some of its steps; `cargo xtask sim` runs more of them, and every step.

use brokkr_sim::case::Case;
use brokkr_sim::suite::{self, SuiteResult};

fn assert_no_violation(result: &SuiteResult) {
    println!("{} stories, {} steps", result.stories, result.steps);
    assert!(result.violations.is_empty(), "{:#?}", result.violations);
}

#[test]
fn d6_any_fault_in_two_hundred_stories_leads_to_the_same_final_state() {
    assert_no_violation(&suite::run(0..200, Case::from_seed, &[suite::PLAIN], 20));
}

/// With the fence, and users, permissions and records that do their worst.
#[test]
fn d6_j3_j4_j5_any_fault_in_two_hundred_hostile_stories_leads_to_the_same_final_state() {
    let faults = [suite::PLAIN, suite::LATE, suite::TROUBLE];
    assert_no_violation(&suite::run(0..200, Case::hostile, &faults, 20));
}

/// Stories that have found a mistake at one single step: a Namespace that a later cycle of a stopped delivery creates, a
/// definition that changes while its kind is not served, a Job that is collected after the answer to its update was lost.
#[test]
fn d6_any_fault_at_every_step_of_four_stories_leads_to_the_same_final_state() {
    let faults = [suite::PLAIN, suite::LATE, suite::TROUBLE];
    assert_no_violation(&suite::run([934, 937, 1243, 1752].into_iter(), Case::hostile, &faults, 1));
}

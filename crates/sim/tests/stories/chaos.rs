//! Everything at once, then all faults end: the state must converge and stay.

use brokkr_sim::play::{stories, wildly};

#[test]
fn l1_after_any_faults_every_stack_converges_and_stays() {
    stories(400, |case| wildly(case, 8).map(|()| 1));
}

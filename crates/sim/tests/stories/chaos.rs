//! Everything at once, then all heals: it must converge, and stay.

use brokkr_sim::play::{stories, wildly};

#[test]
fn l1_after_any_trouble_every_stack_has_what_it_should_and_stays() {
    stories(400, |case| wildly(case, 8).map(|()| 1));
}

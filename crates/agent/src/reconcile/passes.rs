//! How long stacks take to come to rest, and how that ended. Counted only: nothing is decided on it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use brokkr_api::StackId;

use crate::model::Stage;

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Everything is written, and what no longer belongs is gone.
    Applied,
    /// It stopped, and is tried again later.
    Failed,
    /// Nothing of it is left.
    Removed,
}

/// The stacks that have something to do, with since when.
#[derive(Debug, Default)]
pub struct Passes {
    begun: BTreeMap<StackId, Instant>,
}

impl Passes {
    /// Takes in where a stack is now. Answers how its pass ended, if it did.
    pub fn note(&mut self, stack: StackId, stage: Stage, now: Instant) -> Option<(Outcome, Duration)> {
        match stage {
            Stage::Steady => self.end(stack, Outcome::Applied, now),
            Stage::Stopped => self.end(stack, Outcome::Failed, now),
            _ => {
                self.begun.entry(stack).or_insert(now);
                None
            }
        }
    }

    /// A pass ends once: staying at rest is none.
    pub fn end(&mut self, stack: StackId, outcome: Outcome, now: Instant) -> Option<(Outcome, Duration)> {
        let begun = self.begun.remove(&stack)?;
        Some((outcome, now.duration_since(begun)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_once_however_often_the_stack_is_looked_at() {
        let (mut passes, stack, begin) = (Passes::default(), StackId(uuid::Uuid::nil()), Instant::now());
        let second = |number| begin + Duration::from_secs(number);
        assert_eq!(passes.note(stack, Stage::Fetch, begin), None);
        assert_eq!(passes.note(stack, Stage::Apply, second(1)), None);
        let ended = passes.note(stack, Stage::Steady, second(3));
        assert_eq!(ended, Some((Outcome::Applied, Duration::from_secs(3))));
        assert_eq!(passes.note(stack, Stage::Steady, second(4)), None, "a repair is no pass");
        assert_eq!(passes.note(stack, Stage::Inspect, second(5)), None);
        let ended = passes.note(stack, Stage::Stopped, second(6));
        assert_eq!(ended, Some((Outcome::Failed, Duration::from_secs(1))));
        assert_eq!(passes.end(stack, Outcome::Removed, second(7)), None);
    }
}
